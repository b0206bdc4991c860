// Interface of a destination for segments of training state (StateSink), and of a checkpoint's destination: checkpoint
// files, weights files, memory. Loop thread only unless stated otherwise.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/optimizer/state_records.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// A segment: elements [begin, begin + count) of a unit's array, written by this rank only. Segments do not
/// split blocks of int8.
struct StatePiece {
  std::size_t unit = 0;   ///< index in the stage
  std::size_t array = 0;  ///< index in optimizer_states
  std::size_t begin = 0, count = 0;
  runtime::DType dtype = runtime::DType::f32;  ///< type of the array

  [[nodiscard]] std::size_t bytes() const noexcept { return runtime::bytes_of(dtype, count); }
  friend bool operator==(const StatePiece&, const StatePiece&) = default;
};

class StateSink {
 public:
  virtual ~StateSink() = default;

  /// Takes a segment. `number`: index in Snapshot::Plan. `blocks`: the segment's bytes, padded with zeros to blocks of
  /// 4096 bytes and aligned to them; `hash`: their XXH3. The memory stays until `done`, which is called once, during
  /// the call or later. Segments come in any order, several at a time, each once. After a failure, which a sink reports
  /// elsewhere, it still takes segments.
  virtual void put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks,
                   std::uint64_t hash, runtime::Handler done) = 0;
};

/// Result of a rank's part of a checkpoint, sent to rank 0.
struct CheckpointShare {
  std::string failure;  ///< empty: none
  std::uint64_t bytes = 0;
  std::vector<std::byte> data;  ///< data in the target's format
};

/// Receives the segments of one checkpoint at a time. Methods are listed in call order.
class CheckpointTarget : public StateSink {
 public:
  /// Every rank, loop: the next checkpoint is the last of the run and is not repeated.
  virtual void is_last() {}
  /// Rank 0, loop: a checkpoint of this step starts. Records information about the run.
  virtual void begin(std::int64_t) {}
  /// Rank 0, host thread, before any rank opens: makes space for the checkpoint. May block. An exception fails the
  /// checkpoint. prepare(), commit() and discard() never run at the same time.
  virtual void prepare(std::int64_t step) = 0;
  /// Every rank, loop: opens the checkpoint and calls `opened` on the loop, even after a failure. put() follows.
  virtual void open(std::int64_t step, runtime::Handler opened) = 0;
  /// Every rank, loop, after all segments were taken: calls `done` on the loop when the data is durable or has failed.
  virtual void close(std::function<void(CheckpointShare)> done) = 0;
  /// Rank 0, host thread, after all ranks closed without failure: completes the checkpoint from the shares, by rank.
  /// May block; exceptions as in prepare(). Returns a warning, or an empty text.
  [[nodiscard]] virtual std::string commit(std::int64_t step, std::span<const StateScalar> scalars,
                                           std::span<const CheckpointShare> shares) = 0;
  /// Rank 0, host thread, instead of commit() after a failure: removes the incomplete checkpoint.
  virtual void discard(std::int64_t step) noexcept = 0;
};

}  // namespace ranvier::actors
