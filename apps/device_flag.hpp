// --device, which every program that computes has: "cpu", "inline", "cuda" or "cuda:N". Pure; any thread.
#pragma once

#include "runtime/options.hpp"

#include <optional>

namespace ranvier::apps {

enum class DeviceChoice { cpu, inline_, cuda };

/// Reads and writes both: `gpu` is the N of cuda:N. What this build has no device for is refused.
[[nodiscard]] runtime::OptionBinding device_flag(DeviceChoice& device, std::optional<int>& gpu);

}  // namespace ranvier::apps
