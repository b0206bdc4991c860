// Sizes of a family in its config.json, by the keys of its table of sizes. Any thread.
#pragma once

#include "models/families/family.hpp"
#include "models/weights/config_file.hpp"

#include <string>
#include <string_view>

namespace ranvier::models {

/// Throws ErrorCode::data for invalid sizes, naming the file and keys; a field without a size is named like its key.
template <ModelFamily Options>
void expect_sizes(const Options& options, const ConfigFile& config) {
  const auto key_of = [](std::string_view field) {
    for (const SizeField<Options>& size : Options::sizes())
      if (!size.key.empty() && field_name(size.size) == field) return "'" + std::string(size.key) + "'";
    return "'" + std::string(field) + "'";
  };
  if (const auto problem = size_problem(options, key_of))
    fail(ErrorCode::data, "{}: {}", config.path().string(), *problem);
}

/// Writes all sizes that have a key.
template <ModelFamily Options>
void set_sizes(JsonMembers& members, const Options& options) {
  for (const auto& [size, field, key, least] : Options::sizes())
    if (!key.empty()) members.set(std::string(key), std::to_string(options.*field));
}

}  // namespace ranvier::models
