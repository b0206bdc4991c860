// Flags of ranvier-train for sharding model states over a column, and for the column's collectives. Declared into the
// program's option table, resolved after its parse(). One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"
#include "apps/program/options.hpp"
#include "collectives/plans/algorithms.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace ranvier::apps {

/// Collectives with a flag for their algorithm, and its field.
inline constexpr std::array algorithm_fields{
    std::pair{collectives::Collective::all_gather, &actors::AlgorithmNames::all_gather},
    std::pair{collectives::Collective::reduce_scatter, &actors::AlgorithmNames::reduce_scatter},
    std::pair{collectives::Collective::all_reduce, &actors::AlgorithmNames::all_reduce}};

[[nodiscard]] bool has_algorithm(collectives::Collective collective, std::string_view name);

/// Adds the concern "Sharding". `trainer` and `shard` outlive the table.
void declare_sharding(TrainTable& table, actors::TrainerOptions& trainer, ShardOptions& shard);

/// Reads the file of --links and sets the node size. `imagined`: the ranks come from --world. Throws ErrorCode::usage
/// if --group-size does not divide --g-data.
void resolve_sharding(TrainOptions& options, bool imagined);

/// Throws ErrorCode::usage for --shard-trained and --parameter-tier-trained if no part of the model is frozen. Call
/// after resolve_tuning().
void check_flags_of_part(const TrainOptions& options);

}  // namespace ranvier::apps
