// Error message of PCRE2 for an invalid expression or a failed match. Any thread.
#pragma once

#include <string>

namespace ranvier::models {

/// `code` is a negative result of pcre2_match(), or the error of pcre2_compile().
[[nodiscard]] std::string pattern_error(int code);

}  // namespace ranvier::models
