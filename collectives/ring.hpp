// Rings: each rank sends to the next one and receives from the one before. P ranks, E elements, all divisible.
//
//   operation        steps     sent per rank
//   reduce-scatter   P - 1     E (P-1)/P
//   all-gather       P - 1     E (P-1)/P
//   all-reduce       2 (P-1)   2 E (P-1)/P
//
// The sum of piece p starts at rank p+1 and ends at its owner p. One rank or no elements: no steps.
#pragma once

#include "collectives/plan.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan ring_reduce_scatter(int ranks, std::size_t elements, int chunks = 1, int chunk = 0);
[[nodiscard]] Plan ring_all_gather(int ranks, std::size_t elements, int chunks = 1, int chunk = 0);
[[nodiscard]] Plan ring_all_reduce(int ranks, std::size_t elements, int chunks = 1, int chunk = 0);

}  // namespace ranvier::collectives
