#include "actors/optimizer/bundle_sweep.hpp"

#include <algorithm>
#include <deque>

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

void BundleSweep::add(const ModelShare& share, std::size_t bundle, std::size_t number, Pass pass) {
  bundles.push_back(
      {.buckets = share.chunks.bundles[bundle].buckets, .pass = pass, .number = number, .first = buckets.size()});
  std::size_t gradients = 0, parameters = 0;
  for (const ChunkSchedule::Bucket& bucket : bundles.back().buckets) {
    buckets.push_back({bucket, bundles.size() - 1, gradients, parameters});
    gradients += gradient_bytes(*share.states, bucket);
    parameters += parameter_bytes(*share.states, bucket);
  }
}

BundleSweep::BundleSweep(const ModelShare& share, std::span<const std::size_t> order) {
  const std::vector<UnitState>& units = share.states->all();
  struct SecondPass {
    std::size_t bundle = 0, number = 0;
  };
  std::deque<SecondPass> waiting;
  std::vector<std::size_t> first_passes(units.size()), second_passes(units.size());  // buckets, by unit
  std::vector<std::size_t> ended(units.size());  // units whose first pass ended before or with this one's
  std::size_t updated = 0;                       // units between the start and the end of their passes
  const auto has_matrices = [&](const ChunkSchedule::Bucket& bucket) {
    return !units[bucket.unit].matrices.empty();
  };
  const auto add_waiting = [&](std::size_t units_ahead) {
    for (; !waiting.empty(); waiting.pop_front()) {
      const auto& of_bundle = share.chunks.bundles[waiting.front().bundle].buckets;
      if (!std::ranges::all_of(of_bundle, [&](const ChunkSchedule::Bucket& bucket) {
            return !has_matrices(bucket) ||
                   (ended[bucket.unit] > 0 && ended[bucket.unit] + units_ahead <= matrix_units.size());
          }))
        return;
      add(share, waiting.front().bundle, waiting.front().number, Pass::matrices);
      for (const ChunkSchedule::Bucket& bucket : of_bundle) {
        if (has_matrices(bucket) && ++second_passes[bucket.unit] == units[bucket.unit].cut.buckets()) --updated;
      }
    }
  };
  for (std::size_t number = 0; number < order.size(); ++number) {
    const auto& of_bundle = share.chunks.bundles[order[number]].buckets;
    if (std::ranges::none_of(of_bundle, has_matrices)) {
      add_waiting(0);  // parameters are refreshed in the order of numbers
      if (waiting.empty()) {
        add(share, order[number], number, Pass::whole);
        continue;
      }
    }
    add(share, order[number], number, Pass::momentum);
    waiting.push_back({order[number], number});
    for (const ChunkSchedule::Bucket& bucket : of_bundle) {
      if (!has_matrices(bucket)) continue;
      if (first_passes[bucket.unit]++ == 0) updated_units = std::max(updated_units, ++updated);
      if (first_passes[bucket.unit] < units[bucket.unit].cut.buckets()) continue;
      matrix_units.push_back(bucket.unit);
      ended[bucket.unit] = matrix_units.size();
    }
    add_waiting(share.column->layout.ranks() > 1 ? 1 : 0);
  }
  add_waiting(0);
}

}  // namespace ranvier::actors
