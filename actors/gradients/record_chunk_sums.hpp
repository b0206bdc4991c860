// Chunks whose sums live in a tier: they pass through a few places on the device, the buckets of one after another on
// blocks. The reduced part of a chunk goes back to the tier. If every step counts and the optimizer takes gradients on
// the device, it stays until the optimizer took it.
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
  /// `lends`: the optimizer takes chunks as they are reduced.
  [[nodiscard]] static Plan plan(PlanContext& planner, bool lends);

  /// `freed`: there is room again, also after the batch.
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
    std::vector<std::size_t> offsets;  // by bucket, in the place
    std::size_t missing = 0;           // buckets, on their way here and back
    runtime::Handler available;        // once it has left, until those before it have
  };

  void store(std::size_t chunk, runtime::Handler over);
  void lend(std::size_t chunk);
  /// What is left of a bucket.
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
