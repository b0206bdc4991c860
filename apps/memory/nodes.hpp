// Node of each rank of a run. Pure functions with the same result on all ranks, callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"

#include <span>
#include <vector>

namespace ranvier::apps {

/// Node of every rank: from --node-size, or else `asked`, the nodes that MPI reports. --world needs no `asked`. Throws
/// ErrorCode::usage if --links lacks a class of links that the job has.
[[nodiscard]] std::vector<int> nodes_of(const TrainOptions& options, std::span<const int> asked);

}  // namespace ranvier::apps
