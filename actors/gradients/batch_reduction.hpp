// Reduction at the batch's end (Myelin §V-C; MiCS §3.4, PaRO §3.4): second hop or all-reduce of each gradient chunk
// (chunk_schedule.hpp) as soon as its units are complete, then squared norms. All ranks of a column have the same order
// of chunks. Loop thread only.
//
// On the device, gradients are reduced in place. Offloaded ones pass through a few device buffers, bucket after bucket
// in whole blocks. Their reduced part returns to the tier, or stays on the device until the optimizer has read it if
// every step is applied.
#pragma once

#include "actors/gradients/offloaded_gradients.hpp"
#include "actors/gradients/gradient_squared_norm.hpp"
#include "actors/gradients/tied_units.hpp"
#include "actors/states/hop_pipeline.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstddef>
#include <functional>
#include <vector>

namespace ranvier::actors {

class BatchReduction {
 public:
  struct Plan {
    HopPipeline::Plan reduction;
    runtime::SlotPool::Plan places;  ///< for chunks of offloaded gradients
    bool lends = false;              ///< the optimizer reads offloaded chunks as they are reduced
    GradientSquaredNorm::Plan squares;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, bool every_step_counts);

  /// `records` is null if accumulated gradients are on the device.
  BatchReduction(const RankContext& context, const ModelShare& share, const Plan& plan, TiedUnits& tied,
                 OffloadedGradients* records);

  /// Sets a callback with the number of each chunk that is ready for the optimizer, in order. Call it once, before
  /// start().
  void when_reduced(std::function<void(std::size_t chunk)> reduced) { chunk_reduced_ = std::move(reduced); }
  /// Starts a batch; `done` runs when all chunks are reduced and their squared norms are available.
  void start(runtime::Handler done);
  /// This rank's gradients of the unit are complete and stored with tied use 0.
  void summed(std::size_t unit);

  /// See GradientSync::sum_of_squares().
  [[nodiscard]] double sum_of_squares(std::size_t unit) const { return squares_.of(unit); }

  [[nodiscard]] std::vector<Wait> waits() const { return reduction_.waits(); }
  [[nodiscard]] std::vector<int> peers() const { return reduction_.peers(); }

 private:
  struct Chunk {
    runtime::SlotPool::Slot place;  // buffer of offloaded gradients
    std::vector<ChunkSchedule::Bucket> buckets;
    std::vector<std::size_t> offsets;  // by bucket, within the buffer
  };

  void bring(std::size_t chunk);
  void submit(std::size_t chunk);
  void make_equal(std::size_t chunk);
  void reduced(std::size_t chunk);
  void keep(std::size_t chunk);
  void announce(std::size_t chunk);
  void over();
  /// Record of bucket number `place` of a fetched chunk; null: the gradients are stored at UnitState::gradients.
  [[nodiscard]] std::byte* record(const Chunk& chunk, std::size_t place) const;
  /// The bucket's reduced gradients, in its record or in the unit.
  [[nodiscard]] std::byte* reduced_part(const Chunk& chunk, std::size_t place) const;
  [[nodiscard]] std::vector<runtime::Bytes> runs_of_reduced(const Chunk& chunk, std::size_t place) const;

  const RankContext* context_;
  const UnitStates* states_;
  TiedUnits* tied_;
  OffloadedGradients* records_;
  bool lends_;
  HopPipeline reduction_;
  GradientSquaredNorm squares_;
  runtime::SlotPool places_;
  std::vector<Chunk> chunks_;
  std::vector<bool> ready_;  // by unit
  // Phases of chunks, each in the same order on every row.
  std::size_t next_ = 0;  // next chunk to fetch
  runtime::InOrder submits_, copies_, sums_, announces_;
  std::size_t missing_ = 0;  // unfinished chunks
  std::function<void(std::size_t)> chunk_reduced_;
  runtime::Handler done_;
};

}  // namespace ranvier::actors
