#include "models/text/bpe_encoder.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

namespace ranvier::models {
namespace {

constexpr std::size_t known_words = std::size_t{1} << 15;  // 2 MiB: beside other data in a core's cache
constexpr std::size_t longest_scanned = 192;               // bytes; longer words are merged by a queue
constexpr std::size_t piece_bytes = std::size_t{64} << 10;

std::uint64_t load(const char* from, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

std::uint64_t hash_of(std::string_view word) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  const char* const data = word.data();
  const std::size_t size = word.size();
  std::uint64_t hash = size * odd;
  const auto mix = [&hash](std::uint64_t bits) {
    hash = (hash ^ bits) * odd;
    hash ^= hash >> 29;
  };
  if (size >= 8) {
    for (std::size_t i = 0; i + 8 < size; i += 8) mix(load(data + i, 8));
    mix(load(data + size - 8, 8));
  } else if (size >= 4) {
    mix(load(data, 4) | load(data + size - 4, 4) << 32);
  } else {
    mix(load(data, 1) | load(data + size / 2, 1) << 8 | load(data + size - 1, 1) << 16);
  }
  return hash ^ hash >> 32;
}

}  // namespace

struct BpeEncoder::KnownWord {
  static constexpr std::size_t longest = 38, most = 6;
  std::uint8_t length = 0;  // 0: nothing is here
  std::uint8_t count = 0;
  char word[longest];
  std::int32_t tokens[most];
};

/// A token of a word while its neighbours are joined, or nothing any more once it was joined to the one before.
struct BpeEncoder::Part {
  std::int32_t token = 0;
  BpeVocabulary::Joined joined;  // with the part that follows
  std::uint32_t before = 0, after = 0;
};

BpeEncoder::BpeEncoder(const BpeVocabulary& vocabulary, SpelledSpecials specials)
    : vocabulary_(vocabulary), specials_(specials), known_(known_words) {}

BpeEncoder::~BpeEncoder() = default;

void BpeEncoder::encode(std::string_view text, std::vector<std::int32_t>& to) {
  while (specials_ == SpelledSpecials::token) {
    const std::size_t at = text.find(end_of_text_spelling);
    if (at == std::string_view::npos) break;
    encode_ordinary(text.substr(0, at), to);
    to.push_back(vocabulary_.end_of_text());
    text.remove_prefix(at + end_of_text_spelling.size());
  }
  encode_ordinary(text, to);
}

void BpeEncoder::encode_ordinary(std::string_view text, std::vector<std::int32_t>& to) {
  splitter_.start(text);
  for (std::string_view word = splitter_.next(); !word.empty(); word = splitter_.next()) {
    if (word.size() > KnownWord::longest) {
      merge(word, to);
      continue;
    }
    KnownWord& known = known_[hash_of(word) % known_words];
    if (known.length == word.size() && std::memcmp(known.word, word.data(), word.size()) == 0) {
      for (std::uint8_t i = 0; i < known.count; ++i) to.push_back(known.tokens[i]);
      continue;
    }
    const std::size_t first = to.size();
    merge(word, to);
    const std::size_t count = to.size() - first;
    if (count > KnownWord::most) continue;
    known.length = static_cast<std::uint8_t>(word.size());
    known.count = static_cast<std::uint8_t>(count);
    std::memcpy(known.word, word.data(), word.size());
    std::copy(to.begin() + static_cast<std::ptrdiff_t>(first), to.end(), known.tokens);
  }
}

void BpeEncoder::merge(std::string_view word, std::vector<std::int32_t>& to) {
  parts_.resize(word.size());
  for (std::size_t i = 0; i < word.size(); ++i)
    parts_[i].token = vocabulary_.token_of(static_cast<std::uint8_t>(word[i]));
  for (std::size_t i = 0; i + 1 < parts_.size(); ++i)
    parts_[i].joined = vocabulary_.join(parts_[i].token, parts_[i + 1].token);
  parts_.back().joined = {};
  if (word.size() <= longest_scanned)
    merge_short(to);
  else
    merge_long(to);
}

/// Looks for the lowest rank among all parts, time and again.
void BpeEncoder::merge_short(std::vector<std::int32_t>& to) {
  Part* const parts = parts_.data();
  std::size_t count = parts_.size();
  while (true) {
    std::size_t lowest = 0;
    for (std::size_t i = 1; i < count; ++i)
      if (parts[i].joined.rank < parts[lowest].joined.rank) lowest = i;
    if (parts[lowest].joined.rank == BpeVocabulary::no_merge) break;
    parts[lowest].token = parts[lowest].joined.token;
    std::copy(parts + lowest + 2, parts + count, parts + lowest + 1);
    --count;
    parts[lowest].joined = lowest + 1 < count ? vocabulary_.join(parts[lowest].token, parts[lowest + 1].token)
                                              : BpeVocabulary::Joined{};
    if (lowest > 0) parts[lowest - 1].joined = vocabulary_.join(parts[lowest - 1].token, parts[lowest].token);
  }
  for (std::size_t i = 0; i < count; ++i) to.push_back(parts[i].token);
}

/// A queue by rank, then by place; what it says of parts that have changed since is passed over.
void BpeEncoder::merge_long(std::vector<std::int32_t>& to) {
  expect(parts_.size() < ~std::uint32_t{0}, "a word of {} bytes", parts_.size());
  const auto count = static_cast<std::uint32_t>(parts_.size());
  const auto later = std::greater<>();
  const auto entry = [this](std::uint32_t i) { return std::uint64_t{parts_[i].joined.rank} << 32 | i; };
  const auto add = [&](std::uint32_t i) {
    if (parts_[i].joined.rank == BpeVocabulary::no_merge) return;
    queue_.push_back(entry(i));
    std::push_heap(queue_.begin(), queue_.end(), later);
  };
  const auto join = [&](std::uint32_t i) {
    parts_[i].joined = parts_[i].after < count ? vocabulary_.join(parts_[i].token, parts_[parts_[i].after].token)
                                               : BpeVocabulary::Joined{};
    add(i);
  };
  queue_.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    parts_[i].before = i - 1;
    parts_[i].after = i + 1;
    if (parts_[i].joined.rank != BpeVocabulary::no_merge) queue_.push_back(entry(i));
  }
  std::make_heap(queue_.begin(), queue_.end(), later);
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), later);
    const std::uint64_t first = queue_.back();
    queue_.pop_back();
    const auto i = static_cast<std::uint32_t>(first);
    Part& part = parts_[i];
    if (first != entry(i)) continue;
    const std::uint32_t gone = part.after;
    part.token = part.joined.token;
    part.after = parts_[gone].after;
    if (part.after < count) parts_[part.after].before = i;
    parts_[gone].joined = {};
    join(i);
    if (i > 0) join(part.before);
  }
  for (std::uint32_t i = 0; i < count; i = parts_[i].after) to.push_back(parts_[i].token);
}

TextEncoder::TextEncoder(const BpeVocabulary& vocabulary, int threads, SpelledSpecials specials) : pool_(threads) {
  for (int thread = 0; thread < threads; ++thread)
    encoders_.push_back(std::make_unique<BpeEncoder>(vocabulary, specials));
}

void TextEncoder::encode(std::string_view text, std::vector<std::int32_t>& to) {
  std::vector<std::size_t> ends;
  encode(std::span(&text, 1), to, ends);
}

void TextEncoder::encode(std::span<const std::string_view> texts, std::vector<std::int32_t>& to,
                         std::vector<std::size_t>& ends) {
  ends.clear();
  if (pool_.threads() == 1) {
    for (const std::string_view text : texts) {
      encoders_.front()->encode(text, to);
      ends.push_back(to.size());
    }
    return;
  }
  std::vector<std::string_view> pieces;
  std::vector<std::size_t> piece_ends;  // of each text
  for (std::string_view text : texts) {
    while (text.size() > piece_bytes) {
      std::size_t cut = last_cut(text, piece_bytes);
      if (cut == 0) cut = first_cut(text, piece_bytes);
      pieces.push_back(text.substr(0, cut));
      text.remove_prefix(cut);
    }
    if (!text.empty()) pieces.push_back(text);
    piece_ends.push_back(pieces.size());
  }
  tokens_.resize(std::max(tokens_.size(), pieces.size()));
  std::atomic<std::size_t> next = 0;
  pool_.run([&](int thread, int) {
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      tokens_[i].clear();
      encoders_[static_cast<std::size_t>(thread)]->encode(pieces[i], tokens_[i]);
    }
  });
  std::size_t joined = 0;
  for (const std::size_t end : piece_ends) {
    for (; joined < end; ++joined) to.insert(to.end(), tokens_[joined].begin(), tokens_[joined].end());
    ends.push_back(to.size());
  }
}

}  // namespace ranvier::models
