// Text of tokens: applies the decoders of tokenizer.json to their spelling. Data only; any thread.
#pragma once

#include "models/tokenizers/unicode_pattern.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Decodes GPT-2's spelling of bytes as printable characters: printable Latin-1 as itself, the others as U+0100 and
/// above in order. Returns false, with empty text, if a character stands for no byte.
[[nodiscard]] bool bytes_of_spelling(std::string_view spelling, std::string& to);

/// Byte of a spelling such as <0x0A>; negative: none.
[[nodiscard]] int spelled_byte(std::string_view spelling);

class TokenSpelling {
 public:
  /// A decoder: edits the text of a token; `is_first`: the first token of the text.
  using Step = std::function<void(std::string& token, bool is_first)>;

  /// `tokens[id]`: spelling in the vocabulary; `silent[id]`: the token has no text (special tokens). Finally removes
  /// up to `strips` leading `stripped` characters of the complete text.
  TokenSpelling(const std::vector<std::string>& tokens, const std::vector<bool>& silent,
                const std::vector<Step>& steps, char stripped = ' ', int strips = 0);

  [[nodiscard]] std::int32_t size() const noexcept { return static_cast<std::int32_t>(later_begins_.size()) - 1; }

  /// Decoding state at a position in a text.
  struct Position {
    bool is_first = true;  ///< no token was decoded yet
    int strips = 0;        ///< characters that may still be removed
  };
  [[nodiscard]] Position beginning() const noexcept { return {true, strips_}; }

  /// Text of a token below size() inside a text, also if it is silent.
  [[nodiscard]] std::string_view spelled(std::int32_t token) const {
    const auto i = static_cast<std::size_t>(token);
    return std::string_view(later_).substr(later_begins_[i], later_begins_[i + 1] - later_begins_[i]);
  }

  /// Appends the text of a token below size().
  void append(std::int32_t token, Position& position, std::string& to) const;

 private:
  std::string later_, first_;
  std::vector<std::size_t> later_begins_, first_begins_;
  std::vector<bool> silent_;
  char stripped_;
  int strips_;
};

}  // namespace ranvier::models
