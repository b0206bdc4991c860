// Flags of ranvier-train for memory tiers: presets (--offload), a tier per kind of state, and sizes of transfers.
// Declared into the program's option table, resolved after its parse(). One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// Adds the concern "Memory tiers", bound to the trainer's tiers and to `offload`, the preset's name. Both outlive the
/// table.
void declare_tiers(TrainTable& table, actors::TrainerOptions& trainer, std::string& offload);

/// Presets of --offload.
[[nodiscard]] std::vector<std::string> offload_names();

/// Sets all tiers to a preset of --offload, and `offload` to its name. Returns whether there is one.
[[nodiscard]] bool set_offload(actors::TierOptions& tiers, std::string& offload, std::string_view name);

/// Without activation checkpoints (--recompute), --offload does not place them. Throws ErrorCode::usage if a tier lacks
/// a required flag, or if a given flag has no use.
void resolve_tiers(TrainOptions& options);

/// Paths separated by commas, as in --nvme.
[[nodiscard]] std::string paths_text(std::span<const std::filesystem::path> paths);

}  // namespace ranvier::apps
