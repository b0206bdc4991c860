// Error of an action that must fail, with the text that a program prints.
#pragma once

#include "apps/program/flag_names.hpp"
#include "tests/errors.hpp"

namespace ranvier::tests::printed {

template <typename Action>
[[nodiscard]] Error error_of(Action&& action) {
  const Error error = tests::error_of(action);
  return {error.code(), apps::message_of(error)};
}

}  // namespace ranvier::tests::printed
