// What tokens stand for in text, as the decoders of tokenizer.json make it of their spelling. Data alone; any thread.
#pragma once

#include "models/text/unicode_pattern.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// GPT-2 spells bytes as characters that can be printed: those of Latin-1 that can as themselves, the others as
/// U+0100 and on in their order. Empty text where a character stands for no byte; false is then returned.
[[nodiscard]] bool bytes_of_spelling(std::string_view spelling, std::string& to);

/// The byte that a spelling such as <0x0A> means; negative: none.
[[nodiscard]] int spelled_byte(std::string_view spelling);

class TokenSpelling {
 public:
  /// One decoder: edits what a token stands for; `is_first`: of all tokens that are decoded.
  using Step = std::function<void(std::string& token, bool is_first)>;

  /// `tokens[id]` as the vocabulary spells it; `silent[id]`: it stands for nothing, as special tokens do. In the end as
  /// many `stripped` characters as there are, up to `strips`, go from the beginning of all text.
  TokenSpelling(const std::vector<std::string>& tokens, const std::vector<bool>& silent,
                const std::vector<Step>& steps, char stripped = ' ', int strips = 0);

  [[nodiscard]] std::int32_t size() const noexcept { return static_cast<std::int32_t>(later_begins_.size()) - 1; }

  /// Where in a text the next token is decoded.
  struct Position {
    bool is_first = true;  ///< nothing was decoded before
    int strips = 0;        ///< that may still go
  };
  [[nodiscard]] Position beginning() const noexcept { return {true, strips_}; }

  /// The text of a token below size() inside a text, as if no token were silent.
  [[nodiscard]] std::string_view spelled(std::int32_t token) const {
    const auto i = static_cast<std::size_t>(token);
    return std::string_view(later_).substr(later_begins_[i], later_begins_[i + 1] - later_begins_[i]);
  }

  /// Appends what a token below size() stands for.
  void append(std::int32_t token, Position& position, std::string& to) const;

 private:
  std::string later_, first_;
  std::vector<std::size_t> later_begins_, first_begins_;
  std::vector<bool> silent_;
  char stripped_;
  int strips_;
};

}  // namespace ranvier::models
