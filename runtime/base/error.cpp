#include "runtime/base/error.hpp"

#include "runtime/base/names.hpp"

#include <new>

namespace ranvier {

const char* to_string(ErrorCode code) noexcept {
  return runtime::enum_name<ErrorCode::internal>(
      code, {"usage", "data", "io", "memory", "device", "transport", "numeric", "internal"});
}

int exit_code(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::usage:
      return 64;
    case ErrorCode::data:
      return 65;
    case ErrorCode::internal:
      return 70;
    case ErrorCode::memory:
      return 71;
    case ErrorCode::device:
      return 72;
    case ErrorCode::numeric:
      return 73;
    case ErrorCode::io:
      return 74;
    case ErrorCode::transport:
      return 76;
  }
  return 70;
}

ErrorCode error_code(const std::exception& error) noexcept {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return known->code();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? ErrorCode::memory : ErrorCode::internal;
}

}  // namespace ranvier
