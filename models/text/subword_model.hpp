// How the words of a tokenizer become tokens: byte pair encoding of bytes or of characters, or WordPiece (Google's
// BERT, tokenization.py: the longest piece first, again and again). Models are data alone, for any thread; what encodes
// with one is for one thread at a time.
#pragma once

#include "models/text/merge_table.hpp"
#include "models/text/word_cache.hpp"
#include "models/text/word_merger.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ranvier::models {

/// Tokens by what they stand for in words.
class PieceTable {
 public:
  void add(std::string piece, std::int32_t token);
  /// Negative: there is none.
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

/// Whether `mark` is a piece and none has it behind something else: no merge can then join what is before one.
[[nodiscard]] bool joins_nothing_before(const PieceTable& pieces, std::string_view mark);

class SubwordModel {
 public:
  class Encoder {
   public:
    virtual ~Encoder() = default;
    /// Appends the tokens of a word, which is not empty.
    virtual void encode(std::string_view word, std::vector<std::int32_t>& to) = 0;
    /// Those of a byte that belongs to no character.
    virtual void encode_stray(std::uint8_t byte, std::vector<std::int32_t>& to) = 0;
  };
  virtual ~SubwordModel() = default;
  /// The model outlives it.
  [[nodiscard]] virtual std::unique_ptr<Encoder> encoder() const = 0;
};

struct BpeModel {
  bool of_bytes = false;       ///< symbols are bytes, or else characters
  bool ignore_merges = false;  ///< a word that is a token becomes that
  bool byte_fallback = false;  ///< characters that are no tokens become their bytes'
  bool fuse_unknown = false;   ///< neighbours that are no tokens become one unknown token
  std::int32_t unknown = -1;   ///< negative: what is no token is left out
  PieceTable pieces;
  MergeTable merges{0};
  std::array<std::int32_t, 256> bytes{};  ///< the tokens that byte_fallback means; negative: none
};
[[nodiscard]] std::unique_ptr<const SubwordModel> bpe_model(BpeModel model);

struct WordPieceModel {
  std::int32_t unknown = 0;
  std::string continuing_prefix = "##";
  std::size_t longest_word = 100;  ///< characters; longer ones are unknown
  PieceTable pieces;
};
[[nodiscard]] std::unique_ptr<const SubwordModel> word_piece_model(WordPieceModel model);

}  // namespace ranvier::models
