// Binomial tree all-reduce: up to rank 0 and down again, for a few elements, if latency dominates. Steps: 2 ⌈log2 P⌉.
// Sent per rank: at most E ⌈log2 P⌉ (rank 0, on the way down).
#pragma once

#include "collectives/plans/plan.hpp"

namespace ranvier::collectives {

/// Any number of elements; not split into pieces.
[[nodiscard]] Plan tree_all_reduce(int ranks, std::size_t elements, int only = every_rank);

}  // namespace ranvier::collectives
