#include "actors/optimizer/bundle_sweep.hpp"

#include <algorithm>

namespace ranvier::actors {

std::size_t gradient_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket) {
  const UnitState& unit = states.all()[bucket.unit];
  return unit.cut.elements(unit.optimizer, bucket.index) * runtime::size_of(states.precision().gradient);
}

std::size_t parameter_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket) {
  const UnitState& unit = states.all()[bucket.unit];
  return unit.cut.elements(unit.parameters.range, bucket.index) * runtime::size_of(states.precision().compute);
}

BundleGatherPlan plan_gather(PlanContext& planner,
                             std::size_t (*bytes_of)(const UnitStates&, const ChunkSchedule::Bucket&),
                             const char* places, std::size_t slots, const HopPipeline::Options& gather) {
  std::vector<std::vector<HopPipeline::ItemShape>> shapes;
  std::size_t max_bytes = 0;
  for (const ChunkSchedule::Bundle& bundle : planner.share.chunks.bundles) {
    auto& items = shapes.emplace_back();
    std::size_t bytes = 0;
    for (const ChunkSchedule::Bucket& bucket : bundle.buckets) {
      const UnitState& unit = planner.share.states->all()[bucket.unit];
      items.push_back({unit.elements, unit.cut.slice(bucket.index).count});
      bytes += bytes_of(*planner.share.states, bucket);
    }
    max_bytes = std::max(max_bytes, bytes);
  }
  return {.places =
              runtime::SlotPool::plan(planner.memory, {runtime::MemoryKind::workspace, runtime::MemorySpace::device,
                                                       places, max_bytes, std::min(slots, shapes.size())}),
          .gather = HopPipeline::plan(planner, gather, shapes)};
}

BundleSweep::BundleSweep(const ModelShare& share, std::span<const std::size_t> order) {
  for (const std::size_t b : order) {
    bundles.push_back({.buckets = share.chunks.bundles[b].buckets, .first = buckets.size()});
    std::size_t gradients = 0, parameters = 0;
    for (const ChunkSchedule::Bucket& bucket : bundles.back().buckets) {
      buckets.push_back({bucket, bundles.size() - 1, gradients, parameters});
      gradients += gradient_bytes(*share.states, bucket);
      parameters += parameter_bytes(*share.states, bucket);
    }
  }
}

}  // namespace ranvier::actors
