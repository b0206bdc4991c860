// Tokens that text spells as they are, before words are cut: the longest of those that begin somewhere, from left to
// right, as the tokenizers package finds them. Data alone; any thread.
#pragma once

#include "models/text/special_token_policy.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct AddedToken {
  std::string content;
  std::int32_t token = 0;
  bool special = false;                            ///< for what is no text: found only where that is asked for
  bool single_word = false;                        ///< not inside a word
  bool strips_left = false, strips_right = false;  ///< with the white space beside it
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Of contents that are not empty.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Whether anything may be found.
  [[nodiscard]] bool finds(SpecialTokenPolicy specials) const noexcept {
    return specials == SpecialTokenPolicy::tokenizer ? !tokens_.empty() : some_ordinary_;
  }
  [[nodiscard]] bool has_special() const noexcept { return some_special_; }
  /// Whether a token may contain, end at or strip the place `at` before the end of the text, or more text would show.
  [[nodiscard]] bool may_touch(std::string_view text, std::size_t at) const;
  /// Whether a text that is cut before a space, behind another character, has all of its tokens in the parts.
  /// `normalized`: it was, and U+2581 may stand for spaces.
  [[nodiscard]] bool is_local(SpecialTokenPolicy specials, bool normalized) const;

  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t token = 0;
  };
  /// The first from `from` on, where the one before ended.
  [[nodiscard]] std::optional<Found> find(std::string_view text, std::size_t from,
                                          SpecialTokenPolicy specials) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> next;  // by byte, sorted
    std::int32_t ends = -1;                            // number of the token that ends here
  };
  [[nodiscard]] std::int32_t longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
  std::size_t longest_ = 0;  // bytes
  bool some_ordinary_ = false, some_special_ = false;
};

}  // namespace ranvier::models
