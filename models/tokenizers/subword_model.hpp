// Encodes words as tokens: byte pair encoding over bytes or characters, or WordPiece (BERT's tokenization.py:
// repeatedly the longest piece). Models are data, for any thread; an encoder is for one thread at a time.
#pragma once

#include "models/tokenizers/word_cache.hpp"
#include "models/tokenizers/word_merger.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ranvier::models {

/// Tokens by their text in words.
class PieceTable {
 public:
  void add(std::string piece, std::int32_t token);
  /// Negative: not found.
  [[nodiscard]] std::int32_t find(std::string_view piece) const {
    const auto found = tokens_.find(piece);
    return found == tokens_.end() ? -1 : found->second;
  }
  [[nodiscard]] std::size_t longest() const noexcept { return longest_; }  ///< bytes
  [[nodiscard]] const auto& all() const noexcept { return tokens_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> tokens_;
  std::size_t longest_ = 0;
};

/// Whether `mark` is a piece and all other pieces have it only at the start: merges cannot cross it.
[[nodiscard]] bool joins_nothing_before(const PieceTable& pieces, std::string_view mark);

/// Encodes words, with a cache.
class WordEncoder {
 public:
  virtual ~WordEncoder() = default;
  /// Appends the tokens of a non-empty word.
  void encode(std::string_view word, std::vector<std::int32_t>& to) {
    known_.append(word, to, [this](std::string_view unknown, std::vector<std::int32_t>& tokens) {
      encode_unknown(unknown, tokens);
    });
  }
  /// Appends the tokens of a byte that belongs to no character.
  virtual void encode_stray(std::uint8_t byte, std::vector<std::int32_t>& to) = 0;

 private:
  virtual void encode_unknown(std::string_view word, std::vector<std::int32_t>& to) = 0;

  WordCache known_;
};

/// Makes encoders; none may outlive it.
using SubwordModel = std::function<std::unique_ptr<WordEncoder>()>;

struct BpeModel {
  bool of_bytes = false;       ///< symbols are bytes, otherwise characters
  bool ignore_merges = false;  ///< a word that is a token becomes that token
  bool byte_fallback = false;  ///< unknown characters become byte tokens
  bool fuse_unknown = false;   ///< adjacent unknown characters become one unknown token
  std::int32_t unknown = -1;   ///< negative: unknown characters are dropped
  PieceTable pieces;
  MergeTable merges{0};
  std::array<std::int32_t, 256> bytes{};  ///< tokens for byte_fallback; negative: none
};
[[nodiscard]] SubwordModel bpe_model(BpeModel model);

struct WordPieceModel {
  std::int32_t unknown = 0;
  std::string continuing_prefix = "##";
  std::size_t longest_word = 100;  ///< characters; longer ones are unknown
  PieceTable pieces;
};
[[nodiscard]] SubwordModel word_piece_model(WordPieceModel model);

}  // namespace ranvier::models
