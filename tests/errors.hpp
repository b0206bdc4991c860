// The error that an action throws which must fail.
#pragma once

#include "runtime/base/error.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace ranvier::tests {

template <typename Action>
[[nodiscard]] Error error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  std::abort();
}

/// Whether the message has all these parts.
template <typename... Parts>
[[nodiscard]] bool says(const Error& error, const Parts&... parts) {
  const bool found = (... && (std::string_view(error.what()).find(parts) != std::string_view::npos));
  if (!found) MESSAGE("the message was: " << std::string(error.what()));
  return found;
}
template <typename... Parts>
[[nodiscard]] bool says(const Error& error, ErrorCode code, const Parts&... parts) {
  if (error.code() == code) return says(error, parts...);
  MESSAGE("the error was " << std::string(to_string(error.code())) << ": " << std::string(error.what()));
  return false;
}

}  // namespace ranvier::tests
