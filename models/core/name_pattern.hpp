// Regular expression (PCRE2) for tensor names. Any thread.
//
//   NamePattern("attn\\.(q|k)_norm", "`ignore_tensors`").matches_in("h.0.attn.q_norm.weight")
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ranvier::models {

class NamePattern {
 public:
  /// Throws ErrorCode::usage, naming `flag`, the error and its position, if `expression` is invalid.
  NamePattern(const std::string& expression, const std::string& flag);

  /// Whether a part of the name matches. Throws ErrorCode::usage, naming the flag, if the expression backtracks too
  /// long.
  [[nodiscard]] bool matches_in(std::string_view name) const;

 private:
  struct Compiled;

  std::string given_;  // flag and expression
  std::shared_ptr<const Compiled> compiled_;
};

/// Message of PCRE2 for `code`, a negative result of pcre2_match() or the error of pcre2_compile().
[[nodiscard]] std::string pattern_error(int code);

}  // namespace ranvier::models
