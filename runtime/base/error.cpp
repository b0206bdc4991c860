#include "runtime/base/error.hpp"

#include "runtime/base/names.hpp"

#include <iterator>
#include <new>

namespace ranvier {

const char* to_string(ErrorCode code) noexcept {
  return runtime::enum_name<ErrorCode::internal>(
      code, {"usage", "data", "io", "memory", "device", "transport", "numeric", "internal"});
}

int exit_code(ErrorCode code) noexcept {
  constexpr int codes[] = {64, 65, 74, 71, 72, 76, 73, 70};  // in the order of ErrorCode
  static_assert(std::size(codes) == static_cast<std::size_t>(ErrorCode::internal) + 1);
  return codes[static_cast<std::size_t>(code)];
}

ErrorCode error_code(const std::exception& error) noexcept {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return known->code();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? ErrorCode::memory : ErrorCode::internal;
}

}  // namespace ranvier
