// Error of an action that must fail, with the text that a program prints.
#pragma once

#include "apps/program/flag_names.hpp"
#include "tests/errors.hpp"

namespace ranvier::tests {

template <typename Action>
[[nodiscard]] Error printed_error_of(Action&& action) {
  const Error error = error_of(action);
  return {error.code(), apps::message_of(error)};
}

}  // namespace ranvier::tests
