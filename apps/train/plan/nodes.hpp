// On which node each rank of a run is. Pure; any thread; the same on all ranks.
#pragma once

#include "apps/train/options/train_options.hpp"

#include <span>
#include <vector>

namespace ranvier::apps {

/// The node of every rank: as --node-size says, or else as `asked` does, which is what MPI answered; a job that
/// --world imagines needs none. Throws ErrorCode::usage where --links lacks a class of links that the job has.
[[nodiscard]] std::vector<int> nodes_of(const TrainOptions& options, std::span<const int> asked);

}  // namespace ranvier::apps
