// What a sharding costs and what it would cost to choose another one, for --dry-run. Pure; any thread.
#pragma once

#include "apps/sharding.hpp"
#include "apps/train_options.hpp"
#include "models/architecture.hpp"

#include <string>

namespace ranvier::apps {

/// For the chosen sharding and all that have names: bytes of parameters, gradients and optimizer states on a rank
/// of the stage with the most, and what all ranks together send in a batch, between nodes and inside them.
[[nodiscard]] std::string shard_table(const TrainOptions& options, const models::Architecture& architecture,
                                      const ShardSetting& setting);

}  // namespace ranvier::apps
