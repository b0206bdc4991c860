#include "collectives/plans/torus.hpp"

#include "collectives/plans/h_ring.hpp"
#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

Plan torus_all_reduce(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  // The all-reduce across the nodes is the last phase of the reduce-scatter and the first one of the all-gather.
  Plan plan = empty_plan("torus all-reduce", topology, elements, chunks, chunk);
  append(plan, h_ring_reduce_scatter(topology, elements, chunks, chunk, only));
  append(plan, h_ring_all_gather(topology, elements, chunks, chunk, only));
  return plan;
}

}  // namespace ranvier::collectives
