// Flags of ranvier-train for memory tiers: presets (--offload), a tier per kind of state, and sizes of transfers.
// Declared into the program's option table, resolved after its parse(). One thread at a time.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "apps/options/option_effects.hpp"

#include <filesystem>
#include <span>
#include <string>

namespace ranvier::apps {

/// Adds the concern "Memory tiers", bound to the trainer's tiers and to `offload`, the preset's name. Both outlive the
/// table.
void declare_tiers(TrainTable& table, actors::TrainerOptions& trainer, std::string& offload);

/// `checkpoints`: the run has activation checkpoints (--recompute); without, --offload does not place them. Throws
/// ErrorCode::usage if a tier lacks a required flag, or if a given flag has no use.
void resolve_tiers(actors::TierOptions& tiers, const std::string& offload, bool checkpoints,
                   const OptionTable& table);

/// Paths separated by commas, as in --nvme.
[[nodiscard]] std::string paths_text(std::span<const std::filesystem::path> paths);

}  // namespace ranvier::apps
