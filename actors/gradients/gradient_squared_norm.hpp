// Squared norm of this rank's reduced gradients: sums over fixed blocks of finest shards, added in unit order. So the
// norm has the same bits for any bucket and chunk size. Loop thread only.
#pragma once

#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

class GradientSquaredNorm {
 public:
  struct Plan {
    runtime::MemoryId block_checksums, squares;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner);

  GradientSquaredNorm(const RankContext& context, const ModelShare& share, const Plan& plan);

  /// Queues the sums over blocks of a bucket's elements in UnitState::reduced; with a unit's last bucket also their
  /// total. Each bucket once per batch. The first element is at `gradients`. `compact`: the ranges of shards are
  /// contiguous; otherwise as in the unit.
  void take(const ChunkSchedule::Bucket& bucket, const std::byte* gradients, bool compact);
  /// Σ gradient² of this rank's shard of a unit, after the work queued by take().
  [[nodiscard]] double of(std::size_t unit) const { return *squares_[unit]; }

 private:
  runtime::StreamView stream_;
  const UnitStates* states_;
  std::vector<float*> block_checksums_;       // by unit, in shard order
  std::vector<double*> squares_;              // by unit
  std::vector<std::size_t> buckets_missing_;  // by unit
};

}  // namespace ranvier::actors
