#include "collectives/h_ring.hpp"

#include "collectives/stages.hpp"

namespace ranvier::collectives {

Plan h_ring_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk) {
  return gather_across_then_inside("H-Ring all-gather", topology, elements, chunks, chunk,
                                   [](Plan& plan, const Circle& circle) { gather_round_ring(plan, circle); });
}

Plan h_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk) {
  return mirrored(
      gather_across_then_inside("H-Ring reduce-scatter", topology, elements, chunks, chunk,
                                [](Plan& plan, const Circle& circle) { gather_round_ring(plan, circle, true); }));
}

}  // namespace ranvier::collectives
