#include "models/tokenizers/text_encoder.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace ranvier::models {
namespace {

constexpr std::size_t piece_bytes = std::size_t{64} << 10;

}  // namespace

TextEncoder::TextEncoder(const Tokenizer& tokenizer, int threads, SpecialTokenPolicy specials)
    : cuts_(tokenizer.cuts(specials)), pool_(threads) {
  for (int thread = 0; thread < threads; ++thread) encoders_.push_back(tokenizer.encoder(specials));
}

void TextEncoder::encode(std::string_view text, std::vector<std::int32_t>& to) {
  const Passage all{text};
  encode(std::span(&all, 1));
  to.insert(to.end(), tokens_.begin(), tokens_.end());
}

void TextEncoder::encode(std::span<const Passage> passages) {
  tokens_.clear();
  starts_.assign(1, 0);
  if (pool_.threads() == 1) {
    for (const Passage& passage : passages) {
      encoders_.front()->encode(passage.text, passage.begins, tokens_);
      starts_.push_back(tokens_.size());
    }
    return;
  }
  std::vector<Passage> pieces;
  std::vector<std::size_t> piece_ends;  // end of each passage
  for (auto [text, begins] : passages) {
    while (text.size() > piece_bytes) {
      std::size_t cut = last_cut(text, piece_bytes, cuts_);
      if (cut == 0) cut = first_cut(text, piece_bytes, cuts_);
      pieces.push_back({text.substr(0, cut), std::exchange(begins, false)});
      text.remove_prefix(cut);
    }
    if (!text.empty()) pieces.push_back({text, begins});
    piece_ends.push_back(pieces.size());
  }
  piece_tokens_.resize(std::max(piece_tokens_.size(), pieces.size()));
  std::atomic<std::size_t> next = 0;
  pool_.run([&](int thread, int) {
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      piece_tokens_[i].clear();
      encoders_[static_cast<std::size_t>(thread)]->encode(pieces[i].text, pieces[i].begins, piece_tokens_[i]);
    }
  });
  std::size_t joined = 0;
  for (const std::size_t end : piece_ends) {
    for (; joined < end; ++joined)
      tokens_.insert(tokens_.end(), piece_tokens_[joined].begin(), piece_tokens_[joined].end());
    starts_.push_back(tokens_.size());
  }
}

void check_vocabulary(std::span<const std::int32_t> tokens, int vocab_size, const std::filesystem::path& path) {
  const auto most = std::max_element(tokens.begin(), tokens.end());
  if (most != tokens.end() && *most >= vocab_size)
    fail(ErrorCode::data, "{}: token {} is outside `vocab_size` {}; use at least {}", path.string(), *most,
         vocab_size, *most + 1);
}

}  // namespace ranvier::models
