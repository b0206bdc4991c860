// Error of an action that must fail, with the text that a program prints.
#pragma once

#include "apps/program/flag_names.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

template <typename Action>
[[nodiscard]] Error printed_error_of(Action&& action) {
  const Error error = error_of(action);
  return {error.code(), apps::message_of(error)};
}

/// Checks that an action fails with a usage error whose text has all these words.
template <typename Action>
void check_usage_error(std::initializer_list<std::string_view> words, Action&& action) {
  const Error error = printed_error_of(action);
  CHECK(error.code() == ErrorCode::usage);
  check_has(error.what(), words);
}

}  // namespace ranvier::tests
