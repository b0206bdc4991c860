// Files of runtime/profiles/, compiled in by CMake. Callable from any thread.
#pragma once

#include <span>
#include <string_view>

namespace ranvier::runtime {

struct ShippedProfile {
  std::string_view name;  ///< file name without .json
  std::string_view json;
};

[[nodiscard]] std::span<const ShippedProfile> all_shipped_profiles();

}  // namespace ranvier::runtime
