#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/core/pattern_error.hpp"

#include <pcre2.h>

#include <array>

namespace ranvier::models {

std::string pattern_error(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace ranvier::models
