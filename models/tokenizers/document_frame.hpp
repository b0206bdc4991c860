// Tokens around documents of training data, and before prompts for generation. Any thread.
#pragma once

#include "models/tokenizers/tokenizer.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

class DocumentFrame {
 public:
  /// A frame without tokens.
  DocumentFrame() = default;
  /// A frame with the template's tokens, unless the policy is none.
  DocumentFrame(const Tokenizer& tokenizer, SpecialTokenPolicy policy);

  /// Appends the tokens before a document that starts with `first`, unless `first` already has them.
  void begin(std::span<const std::int32_t> first, std::vector<std::int32_t>& to) const;
  /// Appends the tokens after a document.
  void end(std::vector<std::int32_t>& to) const;

  [[nodiscard]] bool begins_with(std::int32_t token) const;
  [[nodiscard]] bool ends_with(std::int32_t token) const;
  /// Whether documents need `end_of_text` between them, because their frame does not start or end with it.
  [[nodiscard]] bool needs_between(std::int32_t end_of_text) const {
    return !begins_with(end_of_text) && !ends_with(end_of_text);
  }

 private:
  TextTemplate around_;
};

struct Prompt {
  std::string text;  ///< text to display
  std::vector<std::int32_t> tokens;
};

/// Tokens of a prompt. If the text is empty: BOS, end of text or a new line.
[[nodiscard]] Prompt make_prompt(std::string_view text, const Tokenizer& tokenizer, SpecialTokenPolicy policy,
                                 const DocumentFrame& frame);

}  // namespace ranvier::models
