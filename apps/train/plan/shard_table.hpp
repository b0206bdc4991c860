// What a sharding costs and what it would cost to choose another one, for --dry-run. Pure; any thread.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "models/architecture.hpp"

#include <span>
#include <string>

namespace ranvier::apps {

/// For the chosen sharding and all that have names: bytes of parameters, gradients and optimizer states on a rank
/// of the stage with the most, and what all ranks together send in a batch, between nodes and inside them. What is
/// still in place when it is needed again is not gathered again, so that may be less than what PaRO's Table 2 says,
/// which stands beside it. Where a part of the model is trained (Ψ′ of Ψ parameters), frozen and trained ones have
/// columns of their own, and a second table has the chosen --shard with every --shard-trained. `stages` has a plan of a
/// rank of each stage; `measured_links` names the file that the links come from, or is empty where they are assumed.
[[nodiscard]] std::string shard_table(const models::Architecture& architecture,
                                      const actors::TrainerOptions& trainer,
                                      std::span<const actors::RankPlan> stages, const std::string& measured_links);

}  // namespace ranvier::apps
