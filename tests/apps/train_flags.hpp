// Flags of ranvier-train in tests.
#pragma once

#include "apps/options/train_options.hpp"
#include "tests/apps/flags.hpp"
#include "tests/apps/printed_errors.hpp"

namespace ranvier::tests {

[[nodiscard]] inline apps::TrainOptions parse_train(const Flags& flags, int ranks = 4,
                                                    const apps::RunDefaults& defaults = {}) {
  return parse_flags("ranvier-train", flags, [&](int argc, const char* const* argv) {
    return apps::parse_train_options(argc, argv, ranks, defaults);
  });
}

[[nodiscard]] inline Flags with_data(const Flags& flags) {
  const bool has_data = std::find(flags.begin(), flags.end(), "--data") != flags.end();
  return has_data ? flags : join(flags, "--data text.txt");
}

/// Checks that such flags, with data, are a usage error with all these words.
inline void refused_train(const Flags& flags, std::initializer_list<std::string_view> words) {
  CAPTURE(flags.line());
  check_usage_error(words, [&] { static_cast<void>(parse_train(with_data(flags))); });
}
inline void refused_train(const Flags& flags, std::string_view words) { refused_train(flags, {words}); }

/// Every option's value as text, by its name.
[[nodiscard]] inline std::map<std::string, std::string> resolved_map(const apps::TrainOptions& options) {
  std::map<std::string, std::string> all;
  for (const auto& option : apps::resolved(options)) all[option.name] = option.value;
  return all;
}

/// Checks that options have these values: "--g-inter 1 --shuffle off".
inline void check_values(const apps::TrainOptions& options, const Flags& expected) {
  const auto all = resolved_map(options);
  REQUIRE(expected.size() % 2 == 0);
  for (std::size_t i = 0; i < expected.size(); i += 2) {
    CAPTURE(expected[i]);
    CHECK(all.at(expected[i].substr(2)) == expected[i + 1]);
  }
}
/// The same for options of such flags, with data.
inline void check_resolved(const Flags& flags, const Flags& expected, int ranks = 4) {
  CAPTURE(flags.line());
  check_values(parse_train(with_data(flags), ranks), expected);
}

}  // namespace ranvier::tests
