// Sums of squares of what this rank has of reduced gradients, for the global norm: over blocks of every finest piece,
// added up in the order of the unit at the end. So the norm has the same bits whatever the buckets and chunks. Loop
// thread only.
#pragma once

#include "actors/rank/rank_context.hpp"
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

  /// Before a batch.
  void start();
  /// Queues the sums of a bucket of the range `reduced`; of a unit's last bucket also their sum. Its first element
  /// is at `gradients`; `compact`: run lies after run, otherwise as in the unit.
  void take(const ChunkSchedule::Bucket& bucket, const std::byte* gradients, bool compact);
  /// Σ gradient² of this rank's piece of a unit, once what take() queued is done.
  [[nodiscard]] double of(std::size_t unit) const { return *squares_[unit]; }

 private:
  runtime::StreamView stream_;
  const UnitStates* states_;
  std::vector<float*> block_checksums_;       // by unit, piece by piece
  std::vector<double*> squares_;              // by unit
  std::vector<std::size_t> buckets_missing_;  // by unit
};

}  // namespace ranvier::actors
