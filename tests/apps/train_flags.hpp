// Flags of ranvier-train in tests.
#pragma once

#include "apps/options/train_options.hpp"
#include "tests/apps/printed_errors.hpp"

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::tests {

[[nodiscard]] inline apps::TrainOptions parse_train(std::vector<const char*> arguments, int ranks = 4) {
  arguments.insert(arguments.begin(), "ranvier-train");
  return apps::parse_train_options(static_cast<int>(arguments.size()), arguments.data(), ranks);
}

/// Checks that such flags, with data, are a usage error with all these words.
inline void refused_train(std::vector<const char*> arguments, std::initializer_list<std::string_view> words) {
  arguments.insert(arguments.end(), {"--data", "text.txt"});
  std::string flags;
  for (const char* argument : arguments) flags += std::string(argument) + " ";
  CAPTURE(flags);
  check_usage_error(words, [&] { static_cast<void>(parse_train(arguments)); });
}
inline void refused_train(std::vector<const char*> arguments, std::string_view words) {
  refused_train(std::move(arguments), {words});
}

/// Every option's value as text, by its name.
[[nodiscard]] inline std::map<std::string, std::string> resolved_map(const apps::TrainOptions& options) {
  std::map<std::string, std::string> all;
  for (const auto& option : apps::resolved(options)) all[option.name] = option.value;
  return all;
}

}  // namespace ranvier::tests
