// What checkpoints of a training become: files of one whole, files of another format, memory. Checkpointer says when.
#pragma once

#include "actors/checkpoint/state_sink.hpp"
#include "actors/rank/actor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// What rank 0 has to know of what a rank wrote.
struct CheckpointShare {
  std::string failure;  ///< empty: none
  std::uint64_t bytes = 0;
  std::vector<std::byte> data;  ///< of the target's own
};

/// Takes the pieces of one checkpoint after another. In the order of the calls:
class CheckpointTarget : public StateSink {
 public:
  /// On every rank, on the loop: nothing follows the checkpoint that begins now, and nobody tries again after it.
  virtual void is_last() {}
  /// On rank 0, on the loop, as the checkpoint of this step begins: notes what is true of the run by now.
  virtual void begin(std::int64_t) {}
  /// On rank 0, before any rank opens it: makes room for a checkpoint of this step. May block; a thread of the host, as
  /// with commit() and discard(), of which one runs at a time. What it throws is why the checkpoint failed.
  virtual void prepare(std::int64_t step) = 0;
  /// On every rank: what is put once `opened` ran on the loop is of this step, whether that went well or not.
  virtual void open(std::int64_t step, runtime::Handler opened) = 0;
  /// Likewise, once all that was put was taken: calls `done` on the loop when it is where it outlives a crash, or has
  /// failed.
  virtual void close(std::function<void(CheckpointShare)> done) = 0;
  /// On rank 0, once all have closed and none has failed: makes a whole of their shares, by rank; as prepare().
  /// Says what went wrong although the checkpoint is whole; empty: nothing.
  [[nodiscard]] virtual std::string commit(std::int64_t step, std::span<const StateScalar> scalars,
                                           std::span<const CheckpointShare> shares) = 0;
  /// Instead, where any of that failed: removes what is left.
  virtual void discard(std::int64_t step) noexcept = 0;
};

}  // namespace ranvier::actors
