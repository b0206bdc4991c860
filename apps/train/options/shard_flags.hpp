// The flags that say how the ranks of a column share states out, and what their collectives go by, as a part of
// ranvier-train's. Declared into the program's table, resolved after its parse(). One thread at a time.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/options.hpp"

namespace ranvier::apps {

/// Adds the concern "Sharding". Both outlive the table.
void declare_sharding(runtime::OptionTable& table, actors::TrainerOptions& trainer, ShardOptions& shard);

/// Reads measured links. `imagined`: the ranks of --world. Throws ErrorCode::usage for groups that do not divide the
/// column.
void resolve_sharding(TrainOptions& options, bool imagined);

/// Once it is known what is trained: throws ErrorCode::usage for --shard-trained and --parameter-tier-trained where no
/// part of the model is named.
void check_flags_of_part(const TrainOptions& options);

}  // namespace ranvier::apps
