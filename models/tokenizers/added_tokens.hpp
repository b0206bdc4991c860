// Finds added tokens such as <|endoftext|> in text before it is split into words: the longest match first, from left to
// right, like Hugging Face's tokenizers. Data only; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Treatment of special tokens (<s>, <|user|>, [MASK]) when encoding text.
enum class SpecialTokenPolicy {
  tokenizer,  ///< as in transformers: spellings become tokens; the template's tokens are added around texts
  text,       ///< spellings stay text, so text cannot end a document; the template's tokens are added
  none,       ///< spellings stay text; no tokens are added
};

struct AddedToken {
  std::string content;
  std::int32_t token = 0;
  bool special = false;                            ///< not text: found only if the policy allows special tokens
  bool single_word = false;                        ///< not inside a word
  bool strips_left = false, strips_right = false;  ///< removes adjacent white space
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Takes tokens with non-empty contents.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Whether find() can find any token.
  [[nodiscard]] bool finds(SpecialTokenPolicy specials) const noexcept {
    return specials == SpecialTokenPolicy::tokenizer ? !tokens_.empty() : some_ordinary_;
  }
  [[nodiscard]] bool has_special() const noexcept { return some_special_; }
  /// Whether a token may contain, end at or strip position `at` (before the end of the text), or only more text can
  /// tell.
  [[nodiscard]] bool may_touch(std::string_view text, std::size_t at) const;
  /// Whether no token spans a cut before a space that follows another character. `normalized`: the text is normalized
  /// and U+2581 may stand for spaces.
  [[nodiscard]] bool is_local(SpecialTokenPolicy specials, bool normalized) const;

  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t token = 0;
  };
  /// First token at or after `from`, the end of the previous match.
  [[nodiscard]] std::optional<Found> find(std::string_view text, std::size_t from,
                                          SpecialTokenPolicy specials) const;

 private:
  struct Node {
    std::map<char, std::uint32_t> next;  // by byte
    std::int32_t ends = -1;              // number of the token that ends here
  };
  [[nodiscard]] std::int32_t longest_at(std::string_view text, std::size_t at) const;
  /// First position at or after `at` where a token may begin; at least the text's size if there is none.
  [[nodiscard]] std::size_t next_begin(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
  std::optional<char> only_begin_;  // first byte of all tokens; none: they have several
  std::size_t longest_ = 0;         // bytes
  bool some_ordinary_ = false, some_special_ = false;
};

}  // namespace ranvier::models
