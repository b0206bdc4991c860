// Location of a chunk's accumulated gradients during its reduction (chunk_schedule.hpp). Loop thread only.
#pragma once

#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"

#include <cstddef>

namespace ranvier::actors {

class ChunkSums {
 public:
  virtual ~ChunkSums() = default;

  /// Returns whether a buffer for the next chunk is free.
  [[nodiscard]] virtual bool has_room() const = 0;
  /// Fetches the chunk's gradients to the device, then calls `there`, at once or on the loop. Chunks in order.
  virtual void bring(std::size_t chunk, runtime::Handler there) = 0;
  /// Record of bucket number `place` of a fetched chunk; null: the gradients are stored at UnitState::gradients.
  [[nodiscard]] virtual std::byte* record(std::size_t chunk, std::size_t place) const = 0;
  /// Call it when the chunk is reduced and its squared norms are queued. Calls `available` when the optimizer may read
  /// it, in chunk order, and `over` when all its work has finished; then a buffer may be free.
  virtual void leave(std::size_t chunk, runtime::Handler available, runtime::Handler over) = 0;
};

/// Accumulated gradients on the device, reduced in place.
class DeviceChunkSums final : public ChunkSums {
 public:
  explicit DeviceChunkSums(const RankContext& context) : loop_(&context.loop), stream_(context.compute) {}

  [[nodiscard]] bool has_room() const override { return true; }
  void bring(std::size_t, runtime::Handler there) override { there(); }
  [[nodiscard]] std::byte* record(std::size_t, std::size_t) const override { return nullptr; }
  void leave(std::size_t, runtime::Handler available, runtime::Handler over) override {
    loop_->after_work(stream_, {"gradients", "sums of squares"}, std::move(over));
    available();
  }

 private:
  runtime::EventLoop* loop_;
  runtime::StreamView stream_;
};

}  // namespace ranvier::actors
