// What PCRE2 says of an expression that it does not read, or cannot match. Any thread.
#pragma once

#include <string>

namespace ranvier::models {

/// Of a negative result of pcre2_match(), or of the error of pcre2_compile().
[[nodiscard]] std::string pattern_error(int code);

}  // namespace ranvier::models
