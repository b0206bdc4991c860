// Traffic of a column, and the cost of the chosen sharding next to all named ones, for --dry-run. Pure; any thread.
#pragma once

#include "actors/predict/volume.hpp"
#include "actors/rank/rank_plan.hpp"
#include "models/core/architecture.hpp"

#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Nodes of a stage's ranks.
[[nodiscard]] std::vector<int> nodes_of_column(const actors::TrainerOptions& trainer, int stage);
/// Counts traffic within a column with this plan, nodes and algorithms.
[[nodiscard]] actors::VolumeOptions volume_options(const actors::TrainerOptions& trainer,
                                                   const actors::RankPlan& plan, std::vector<int> nodes,
                                                   const actors::PlanChoices& algorithms);

/// One line per sharding, chosen and named ones: bytes of states per rank for the stage with most, and bytes that all
/// ranks send per batch, between and inside nodes. PaRO's Table 2 is printed next to them. It can be larger, because
/// units still in their buffers are not gathered again. If a part of the model is trained (Ψ′ of Ψ parameters), frozen
/// and trained parameters have separate columns, and a second table varies --shard-trained. `stages`: plan of one rank
/// per stage. `measured_links`: file of the links; empty if they are assumed.
[[nodiscard]] std::string shard_table(const models::Architecture& architecture,
                                      const actors::TrainerOptions& trainer,
                                      std::span<const actors::RankPlan> stages, const std::string& measured_links);

}  // namespace ranvier::apps
