// A regular expression (PCRE2's) for names of tensors. Any thread.
//
//   NamePattern("attn\\.(q|k)_norm", "--ignore-tensors").matches_in("h.0.attn.q_norm.weight")
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ranvier::models {

class NamePattern {
 public:
  /// Throws ErrorCode::usage, naming `flag` and what is wrong at which place, if `expression` is none.
  NamePattern(const std::string& expression, const std::string& flag);

  /// Whether some part of the name matches. Throws ErrorCode::usage, naming the flag, if the expression goes back
  /// and forth in it so often that it would take long.
  [[nodiscard]] bool matches_in(std::string_view name) const;

 private:
  struct Compiled;

  std::string given_;  // flag and expression
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace ranvier::models
