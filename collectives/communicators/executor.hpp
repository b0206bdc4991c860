// Runs one rank's steps of plans over a transport: starts the sends and receives of a step together, adds on a device
// stream, and continues when all are done. Half precision is added in fp32 and rounded once per addition.
//
// An operation may have several parts, each with its own buffer. One message contains the short ranges of all parts
// (coalescing, MiCS §4); ranges of 8 KiB or more are sent separately.
//
// One executor per rank, several operations at a time. All ranks of an operation need schedules of the same plans and
// the same `index`; running operations that share a pair of ranks need different ones. Loop thread only.
#pragma once

#include "collectives/plans/rank_schedule.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/device/device.hpp"
#include "runtime/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ranvier::collectives {

class Executor {
 public:
  /// A range of a part in its buffer.
  struct Extent {
    std::byte* data = nullptr;
    runtime::StridedLayout runs;
    std::size_t count = 0;  ///< elements

    /// Strided data is packed, so that it is one contiguous range of a message.
    [[nodiscard]] bool packed() const noexcept { return !runs.contiguous(); }
  };

  /// One part. All parts of an operation have schedules of the same algorithm and team, and the same number of chunks.
  struct Operand {
    std::byte* data = nullptr;                                   ///< buffer of RankSchedule::elements of `dtype`
    std::shared_ptr<const std::vector<RankSchedule>> schedules;  ///< one per chunk; `depth` run in parallel
    std::size_t run = 0, stride = 0;  ///< stride of the buffer, as in Communicator::Operand

    [[nodiscard]] Extent extent(const Range& range, std::size_t element_bytes) const;
    /// Step `number` of a chunk; null if that chunk of the part has no elements.
    [[nodiscard]] const RankSchedule::Step* step(std::size_t chunk, std::size_t number) const;
  };

  struct Operands {
    std::vector<Operand> parts;
    std::vector<int> members;      ///< MPI rank of each of the plan's ranks
    int me = 0;                    ///< this rank's index in `members`
    std::byte* staging = nullptr;  ///< staging_bytes(...); not shared with other running operations
    runtime::DType dtype = runtime::DType::f32;
    runtime::Channel channel = runtime::Channel::collective;
    std::uint32_t index = 0;  ///< first of as many consecutive tags as chunks
    int depth = 2;            ///< chunks in flight

    [[nodiscard]] std::size_t chunks() const { return parts.empty() ? 0 : parts.front().schedules->size(); }
    [[nodiscard]] std::size_t steps(std::size_t chunk) const;
    /// Throws ErrorCode::internal if the parts or members do not match, or runs overlap.
    void check() const;
  };

  /// Bytes of a range in staging, where each range is aligned.
  [[nodiscard]] static std::size_t staged_bytes(std::size_t bytes) { return runtime::round_up(bytes, 64); }

  /// `stream` runs the additions; StreamWidth::one is enough. All arguments must outlive the executor.
  Executor(runtime::EventLoop& loop, runtime::Transport& transport, runtime::StreamView stream);
  /// With unfinished operations, only after the loop's last run.
  ~Executor();

  /// Calls `done` on the loop, after this returned, when this rank has finished every plan. The buffers must be
  /// complete before the call.
  void run(Operands operands, runtime::Handler done);

  /// Bytes of staging for these schedules, `dtype` and `depth`.
  [[nodiscard]] static std::size_t staging_bytes(const Operands& operands);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::collectives
