// Offloaded gradients of chunks: they pass through a few device buffers, bucket after bucket in whole blocks. The
// reduced part returns to the tier, or stays on the device until the optimizer has read it if every step is applied.
#pragma once

#include "actors/gradients/chunk_sums.hpp"
#include "actors/gradients/gradient_records.hpp"

#include <vector>

namespace ranvier::actors {

class RecordChunkSums final : public ChunkSums {
 public:
  struct Plan {
    runtime::MemoryId places;
    std::size_t place_count = 0;
    bool lends = false;
  };
  /// `lends`: the optimizer reads chunks as they are reduced.
  [[nodiscard]] static Plan plan(PlanContext& planner, bool lends);

  /// `freed`: called when a buffer is free, also after the batch.
  RecordChunkSums(const RankContext& context, const ModelShare& share, const Plan& plan, GradientRecords& records,
                  runtime::Handler freed);

  [[nodiscard]] bool has_room() const override { return !free_places_.empty(); }
  void bring(std::size_t chunk, runtime::Handler there) override;
  [[nodiscard]] std::byte* record(std::size_t chunk, std::size_t place) const override;
  void leave(std::size_t chunk, runtime::Handler available, runtime::Handler over) override;

 private:
  struct Chunk {
    std::byte* place = nullptr;
    std::vector<ChunkSchedule::Bucket> buckets;
    std::vector<std::size_t> offsets;  // by bucket, within the buffer
    std::size_t missing = 0;           // buckets in transfer
    runtime::Handler available;        // callback, until all previous chunks are available
  };

  void store(std::size_t chunk, runtime::Handler over);
  void lend(std::size_t chunk);
  /// Reduced gradients of a bucket.
  [[nodiscard]] std::byte* reduced(std::size_t chunk, std::size_t place) const;

  runtime::EventLoop* loop_;
  runtime::StreamView stream_;
  const UnitStates* states_;
  GradientRecords* records_;
  bool lends_;
  runtime::Handler freed_;
  std::vector<Chunk> chunks_;
  std::vector<std::byte*> free_places_;
  std::size_t next_available_ = 0;
};

}  // namespace ranvier::actors
