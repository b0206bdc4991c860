#include "models/tokenizers/subword_model.hpp"

#include "models/tokenizers/unicode.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::models {
namespace {

/// Tokens of characters: a table for those below U+10000, as most are.
class CharacterTokens {
 public:
  explicit CharacterTokens(const PieceTable& pieces) : basic_(0x10000, -1) {
    for (const auto& [piece, token] : pieces.all()) {
      if (piece.empty() || character_bytes(piece, 0) != piece.size()) continue;
      const char32_t c = character_at(piece, 0);
      if (c < 0x10000)
        basic_[c] = token;
      else
        others_[c] = token;
    }
  }
  [[nodiscard]] std::int32_t find(char32_t c) const {
    if (c < 0x10000) return basic_[c];
    const auto found = others_.find(c);
    return found == others_.end() ? -1 : found->second;
  }

 private:
  std::vector<std::int32_t> basic_;
  std::unordered_map<char32_t, std::int32_t> others_;
};

struct Bpe : BpeModel {
  explicit Bpe(BpeModel model) : BpeModel(std::move(model)), characters(pieces) {
    if (!of_bytes) return;
    for (int byte = 0; byte < 256; ++byte) {
      const char one = static_cast<char>(byte);
      bytes[static_cast<std::size_t>(byte)] = pieces.find({&one, 1});
    }
  }
  CharacterTokens characters;
};

class BpeEncoder final : public WordEncoder {
 public:
  explicit BpeEncoder(const Bpe& model) : model_(model), merger_(model.merges) {}

  void encode_stray(std::uint8_t byte, std::vector<std::int32_t>& to) override {
    const std::int32_t token = model_.of_bytes || model_.byte_fallback ? model_.bytes[byte] : -1;
    if (token >= 0)
      to.push_back(token);
    else if (model_.unknown >= 0)
      to.push_back(model_.unknown);
  }

 private:
  void encode_unknown(std::string_view word, std::vector<std::int32_t>& to) override {
    if (model_.ignore_merges) {
      if (const std::int32_t token = model_.pieces.find(word); token >= 0) return to.push_back(token);
    }
    unknown_waits_ = false;
    if (model_.of_bytes) {
      for (const char c : word) add(model_.bytes[static_cast<std::uint8_t>(c)]);
    } else {
      for_each_character(word, [&](char32_t c, std::string_view bytes) {
        const std::int32_t token = model_.characters.find(c);
        if (token < 0 && model_.byte_fallback && falls_back(bytes)) return;
        add(token);
      });
    }
    if (unknown_waits_) merger_.add(model_.unknown);
    merger_.finish(to);
  }

  /// Delays an unknown token, because the next one may be fused with it.
  void add(std::int32_t token) {
    const bool known = token >= 0;
    if (!known && model_.unknown < 0) return;
    if (unknown_waits_ && (known || !model_.fuse_unknown)) merger_.add(model_.unknown);
    unknown_waits_ = !known;
    if (known) merger_.add(token);
  }

  bool falls_back(std::string_view bytes) {
    const auto token = [&](char c) { return model_.bytes[static_cast<std::uint8_t>(c)]; };
    if (std::any_of(bytes.begin(), bytes.end(), [&](char c) { return token(c) < 0; })) return false;
    for (const char c : bytes) merger_.add(token(c));
    return true;
  }

  const Bpe& model_;
  WordMerger merger_;
  bool unknown_waits_ = false;
};

struct WordPiece : WordPieceModel {
  explicit WordPiece(WordPieceModel model) : WordPieceModel(std::move(model)) {
    for (const auto& [piece, token] : pieces.all())
      if (piece.starts_with(continuing_prefix)) inside.add(piece.substr(continuing_prefix.size()), token);
  }
  PieceTable inside;  ///< pieces inside words, without their prefix
};

class WordPieceEncoder final : public WordEncoder {
 public:
  explicit WordPieceEncoder(const WordPiece& model) : model_(model) {}

  void encode_stray(std::uint8_t, std::vector<std::int32_t>& to) override { to.push_back(model_.unknown); }

 private:
  void encode_unknown(std::string_view word, std::vector<std::int32_t>& to) override {
    const auto characters = static_cast<std::size_t>(
        std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xc0) != 0x80; }));
    const std::size_t before = to.size();
    for (std::size_t begin = 0; begin < word.size() && characters <= model_.longest_word;) {
      const PieceTable& pieces = begin == 0 ? model_.pieces : model_.inside;
      std::size_t end = std::min(word.size(), begin + pieces.longest());
      std::int32_t token = -1;
      for (; end > begin; --end) {
        if (end < word.size() && (word[end] & 0xc0) == 0x80) continue;
        token = pieces.find(word.substr(begin, end - begin));
        if (token >= 0) break;
      }
      if (token < 0) break;
      to.push_back(token);
      begin = end;
      if (begin == word.size()) return;
    }
    to.resize(before);
    to.push_back(model_.unknown);
  }

  const WordPiece& model_;
};

}  // namespace

void PieceTable::add(std::string piece, std::int32_t token) {
  longest_ = std::max(longest_, piece.size());
  tokens_.insert_or_assign(std::move(piece), token);
}

bool joins_nothing_before(const PieceTable& pieces, std::string_view mark) {
  if (pieces.find(mark) < 0) return false;
  return std::all_of(pieces.all().begin(), pieces.all().end(), [&](const auto& one) {
    const std::string& piece = one.first;
    std::size_t leading = 0;
    while (piece.compare(leading, mark.size(), mark) == 0) leading += mark.size();
    return piece.find(mark, leading) == std::string::npos;
  });
}

SubwordModel bpe_model(BpeModel model) {
  return [bpe = std::make_shared<const Bpe>(std::move(model))] { return std::make_unique<BpeEncoder>(*bpe); };
}

SubwordModel word_piece_model(WordPieceModel model) {
  return [pieces = std::make_shared<const WordPiece>(std::move(model))] {
    return std::make_unique<WordPieceEncoder>(*pieces);
  };
}

}  // namespace ranvier::models
