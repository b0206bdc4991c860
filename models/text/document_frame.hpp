// Tokens that stand around documents of training data, and before prompts of a model that generates. Any thread.
#pragma once

#include "models/text/tokenizer.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

class DocumentFrame {
 public:
  /// No tokens.
  DocumentFrame() = default;
  /// The template's tokens, unless the policy is none.
  DocumentFrame(const Tokenizer& tokenizer, SpecialTokenPolicy policy);

  /// Appends what stands before a document of which `first` are the first tokens, unless they spell it.
  void begin(std::span<const std::int32_t> first, std::vector<std::int32_t>& to) const;
  /// Appends what stands behind it.
  void end(std::vector<std::int32_t>& to) const;

  [[nodiscard]] bool begins_with(std::int32_t token) const;
  [[nodiscard]] bool ends_with(std::int32_t token) const;
  /// Whether `end_of_text` has to be put between documents, whose tokens do not begin or end with it.
  [[nodiscard]] bool needs_between(std::int32_t end_of_text) const {
    return !begins_with(end_of_text) && !ends_with(end_of_text);
  }

 private:
  TextTemplate around_;
};

struct Prompt {
  std::string text;  ///< text to show
  std::vector<std::int32_t> tokens;
};

/// Tokens of a document that begins with this text. Without text: its BOS, or an end of text, or a new line.
[[nodiscard]] Prompt make_prompt(std::string_view text, const Tokenizer& tokenizer, SpecialTokenPolicy policy,
                                 const DocumentFrame& frame);

}  // namespace ranvier::models
