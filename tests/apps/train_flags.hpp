// Flags of ranvier-train in tests.
#pragma once

#include "apps/options/train_options.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/printed_errors.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::tests {

[[nodiscard]] inline apps::TrainOptions parse_train(std::vector<const char*> arguments, int ranks = 4) {
  arguments.insert(arguments.begin(), "ranvier-train");
  return apps::parse_train_options(static_cast<int>(arguments.size()), arguments.data(), ranks);
}

/// Checks that such flags, with data, are a usage error with these words.
inline void refused_train(std::vector<const char*> arguments, std::string_view words) {
  arguments.insert(arguments.end(), {"--data", "text.txt"});
  const Error error = printed_error_of([&] { static_cast<void>(parse_train(arguments)); });
  CHECK(error.code() == ErrorCode::usage);
  CHECK(says(error, words));
}

/// Every option's value as text, by its name.
[[nodiscard]] inline std::map<std::string, std::string> resolved_map(const apps::TrainOptions& options) {
  std::map<std::string, std::string> all;
  for (const auto& option : apps::resolved(options)) all[option.name] = option.value;
  return all;
}

}  // namespace ranvier::tests
