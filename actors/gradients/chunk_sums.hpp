// Where the sums of a chunk (chunk_schedule.hpp) are while its column reduces them. Loop thread only.
#pragma once

#include "actors/rank/rank_context.hpp"
#include "actors/states/model_share.hpp"

#include <cstddef>

namespace ranvier::actors {

class ChunkSums {
 public:
  virtual ~ChunkSums() = default;

  /// Whether a chunk may be brought now.
  [[nodiscard]] virtual bool has_room() const = 0;
  /// Has the chunk's sums on the device, then calls `there`, at once or on the loop. Chunks in their order.
  virtual void bring(std::size_t chunk, runtime::Handler there) = 0;
  /// A bucket's record of the range of gradients, number `place` of the chunk that was brought; null: the sums are
  /// where UnitState::gradients says.
  [[nodiscard]] virtual std::byte* record(std::size_t chunk, std::size_t place) const = 0;
  /// The column has reduced the chunk, and its sums of squares are queued. Calls `available` when the optimizer may
  /// take it, in the order of the chunks, and `over` when nothing of it is under way; after it there may be room.
  virtual void leave(std::size_t chunk, runtime::Handler available, runtime::Handler over) = 0;
};

/// Sums on the device stay where they are.
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
