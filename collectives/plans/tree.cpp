#include "collectives/plans/tree.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace ranvier::collectives {

Plan tree_all_reduce(int ranks, std::size_t elements, int only) {
  Plan plan{fmt::format("tree all-reduce of {} ranks, {} elements", ranks, elements), elements, {}};
  plan.ranks.resize(ranks);
  if (elements == 0) return plan;

  std::vector<int> strides;
  for (int stride = 1; stride < ranks; stride *= 2) strides.push_back(stride);
  // Adds one step to every rank. Multiples of `stride` are alternately parents and their children.
  const auto add_step = [&](int stride, Action parent_action, Action child_action) {
    const int first = only == every_rank ? 0 : only, end = only == every_rank ? ranks : only + 1;
    for (int rank = first; rank < end; ++rank) {
      Step step;
      if (rank % (2 * stride) == 0 && rank + stride < ranks) step = {{parent_action, rank + stride, {0, elements}}};
      if (rank % (2 * stride) == stride) step = {{child_action, rank - stride, {0, elements}}};
      plan.ranks[rank].push_back(std::move(step));
    }
  };
  for (const int stride : strides) add_step(stride, Action::receive_add, Action::send);
  std::reverse(strides.begin(), strides.end());
  for (const int stride : strides) add_step(stride, Action::send, Action::receive);
  return plan;
}

}  // namespace ranvier::collectives
