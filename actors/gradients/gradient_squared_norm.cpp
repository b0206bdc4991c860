#include "actors/gradients/gradient_squared_norm.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::actors {

using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

static_assert(BucketPartition::granule % runtime::squares_block_elements == 0);

std::size_t blocks_of_piece(const UnitState& unit) {
  return runtime::ceil_divide(unit.cut.piece_elements(), runtime::squares_block_elements);
}

std::size_t blocks_of(const UnitState& unit) { return unit.cut.pieces(unit.reduced) * blocks_of_piece(unit); }

}  // namespace

GradientSquaredNorm::Plan GradientSquaredNorm::plan(PlanContext& planner) {
  const auto& units = planner.share.states->all();
  std::size_t sums = 0;
  for (const UnitState& unit : units) sums += blocks_of(unit);
  Plan plan;
  plan.block_checksums = planner.memory.add(
      {MemoryKind::workspace, MemorySpace::device, "sums of squares of blocks", sums * sizeof(float), 1});
  plan.squares = planner.memory.add(
      {MemoryKind::workspace, MemorySpace::pinned, "sums of squares", sizeof(double), units.size()});
  return plan;
}

GradientSquaredNorm::GradientSquaredNorm(const RankContext& context, const ModelShare& share, const Plan& plan)
    : stream_(context.compute), states_(share.states.get()) {
  float* sums = context.arena.slot_as<float>(plan.block_checksums);
  for (std::size_t u = 0; u < states_->all().size(); ++u) {
    block_checksums_.push_back(sums);
    sums += blocks_of(states_->all()[u]);
    squares_.push_back(context.arena.slot_as<double>(plan.squares, u));
    buckets_missing_.push_back(states_->all()[u].cut.buckets());
  }
}

void GradientSquaredNorm::take(const ChunkSchedule::Bucket& bucket, const std::byte* gradients, bool compact) {
  const UnitState& unit = states_->all()[bucket.unit];
  const collectives::Range slice = unit.cut.slice(bucket.index);
  const std::size_t piece = unit.cut.piece_elements(), begin = unit.reduced.begin + slice.begin;
  // Padding after the last parameter is not summed.
  const std::size_t ahead = unit.spec->elements() - std::min(unit.spec->elements(), begin);
  const std::size_t elements = std::min(unit.cut.elements(unit.reduced, bucket.index),
                                        ahead / piece * slice.count + std::min(ahead % piece, slice.count));
  runtime::sums_of_squares(stream_, block_checksums_[bucket.unit] + slice.begin / runtime::squares_block_elements,
                           blocks_of_piece(unit), gradients,
                           {.run = slice.count, .stride = compact ? slice.count : piece},
                           states_->precision().gradient, elements);
  if (--buckets_missing_[bucket.unit] > 0) return;
  buckets_missing_[bucket.unit] = unit.cut.buckets();
  runtime::sum(stream_, squares_[bucket.unit], block_checksums_[bucket.unit], blocks_of(unit));
}

}  // namespace ranvier::actors
