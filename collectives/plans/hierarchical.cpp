#include "collectives/plans/hierarchical.hpp"

#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

Plan hierarchical_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return gather_across_then_inside("hierarchical all-gather", topology, elements, chunks, chunk, only,
                                   gather_by_doubling);
}

Plan hierarchical_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return mirrored(gather_across_then_inside("hierarchical reduce-scatter", topology, elements, chunks, chunk, only,
                                            gather_by_doubling));
}

Plan hierarchical_all_reduce(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  Plan plan = empty_plan("hierarchical all-reduce", topology, elements, chunks, chunk);
  append(plan, hierarchical_reduce_scatter(topology, elements, chunks, chunk, only));
  append(plan, hierarchical_all_gather(topology, elements, chunks, chunk, only));
  return plan;
}

}  // namespace ranvier::collectives
