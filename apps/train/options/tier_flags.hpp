// The flags that say where states live, as a part of ranvier-train's: names that place all of them at once, a flag
// for each, and what goes through them on the way. Declared into the program's table, resolved after its parse().
// One thread at a time.
#pragma once

#include "actors/states/tier_options.hpp"
#include "runtime/options.hpp"

#include <filesystem>
#include <span>
#include <string>

namespace ranvier::apps {

/// Adds the concern "Memory tiers", bound to `tiers` and to `offload`, the name for where all states live. Both
/// outlive the table.
void declare_tiers(runtime::OptionTable& table, actors::TierOptions& tiers, std::string& offload);

/// `checkpoints`: layers are recomputed, so that there are some; without, --offload places none. Throws
/// ErrorCode::usage where a tier lacks what it needs, or something given has no use.
void resolve_tiers(actors::TierOptions& tiers, const std::string& offload, bool checkpoints,
                   const runtime::OptionTable& table);

/// As --nvme names them: with commas between them.
[[nodiscard]] std::string paths_text(std::span<const std::filesystem::path> paths);

}  // namespace ranvier::apps
