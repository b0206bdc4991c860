#include "models/tokenizers/document_frame.hpp"

#include <algorithm>

namespace ranvier::models {

DocumentFrame::DocumentFrame(const Tokenizer& tokenizer, SpecialTokenPolicy policy) {
  if (policy != SpecialTokenPolicy::none) around_ = tokenizer.around();
}

void DocumentFrame::begin(std::span<const std::int32_t> first, std::vector<std::int32_t>& to) const {
  const auto& beginning = around_.beginning;
  const bool spelled =
      first.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), first.begin());
  if (!spelled) to.insert(to.end(), beginning.begin(), beginning.end());
}

void DocumentFrame::end(std::vector<std::int32_t>& to) const {
  to.insert(to.end(), around_.ending.begin(), around_.ending.end());
}

bool DocumentFrame::begins_with(std::int32_t token) const {
  return !around_.beginning.empty() && around_.beginning.front() == token;
}

bool DocumentFrame::ends_with(std::int32_t token) const {
  return !around_.ending.empty() && around_.ending.back() == token;
}

Prompt make_prompt(std::string_view text, const Tokenizer& tokenizer, SpecialTokenPolicy policy,
                   const DocumentFrame& frame) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text, policy);
  Prompt prompt{std::string(text), {}};
  frame.begin(tokens, prompt.tokens);
  prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
  if (!prompt.tokens.empty()) return prompt;
  if (const auto end = tokenizer.end_of_text()) return {prompt.text, {*end}};
  return {"\n", tokenizer.encode("\n", policy)};
}

}  // namespace ranvier::models
