// A chunk's accumulated gradients during its reduction (chunk_schedule.hpp). On the device they are reduced in place.
// Offloaded ones pass through a few device buffers, bucket after bucket in whole blocks. Their reduced part returns to
// the tier, or stays on the device until the optimizer has read it if every step is applied. Loop thread only.
#pragma once

#include "actors/gradients/gradient_records.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

class ChunkSums {
 public:
  /// Buffers for offloaded gradients.
  struct Plan {
    runtime::SlotPool::Plan places;
    bool lends = false;
  };
  /// `lends`: the optimizer reads chunks as they are reduced.
  [[nodiscard]] static Plan plan(PlanContext& planner, bool lends);

  /// `records` is null if accumulated gradients are on the device.
  ChunkSums(const RankContext& context, const ModelShare& share, const Plan& plan, GradientRecords* records);

  [[nodiscard]] const std::vector<ChunkSchedule::Bucket>& buckets(std::size_t chunk) const {
    return chunks_[chunk].buckets;
  }
  /// Fetches the chunk's gradients to the device when a buffer is free, then calls `there`, at once or on the loop.
  /// Chunks in order.
  void bring(std::size_t chunk, runtime::Handler there);
  /// Record of bucket number `place` of a fetched chunk; null: the gradients are stored at UnitState::gradients.
  [[nodiscard]] std::byte* record(std::size_t chunk, std::size_t place) const;
  /// The bucket's reduced gradients, in its record or in the unit.
  [[nodiscard]] std::byte* reduced(std::size_t chunk, std::size_t place) const;
  /// Call it when the chunk is reduced and its squared norms are queued. Calls `available` when the optimizer may read
  /// it, in chunk order, and `over` when all its work has finished.
  void leave(std::size_t chunk, runtime::Handler available, runtime::Handler over);

 private:
  struct Chunk {
    runtime::SlotPool::Slot place;
    std::vector<ChunkSchedule::Bucket> buckets;
    std::vector<std::size_t> offsets;  // by bucket, within the buffer
  };

  void store(std::size_t chunk, const runtime::Handler& available, runtime::Handler over);
  void lend(std::size_t chunk);

  const RankContext* context_;
  const UnitStates* states_;
  GradientRecords* records_;
  bool lends_;
  std::vector<Chunk> chunks_;
  runtime::SlotPool places_;
  runtime::InOrder available_;
};

}  // namespace ranvier::actors
