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

[[nodiscard]] inline bool says(const Error& error, std::string_view words) {
  const bool found = std::string_view(error.what()).find(words) != std::string_view::npos;
  if (!found) MESSAGE("the message was: " << std::string(error.what()));
  return found;
}

}  // namespace ranvier::tests
