// Runs one rank's steps of plans over a transport: starts the sends and receives of a step together, adds on a device
// stream, and continues when all are done. Half precision is added in fp32 and rounded once per addition.
//
// An operation may have several parts, each with its own buffer: a message contains that step's ranges of all parts
// without a copy (coalescing, MiCS §4). Ranges of 8 KiB and more are sent separately, since MPI moves contiguous data
// at the link's rate. A range of a strided part counts as several.
//
// One executor per rank. Several operations may run at the same time; those that share a pair of ranks need different
// `index`. All ranks of an operation need scripts of the same plans and the same index. Loop thread only.
#pragma once

#include "collectives/rank_schedule.hpp"
#include "runtime/device.hpp"
#include "runtime/dtype.hpp"
#include "runtime/transport.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace ranvier::collectives {

class Executor {
 public:
  /// All parts of an operation have scripts of one algorithm and team, in equal number.
  struct Operand {
    std::byte* data = nullptr;                                   ///< buffer with script.elements of dtype
    std::shared_ptr<const std::vector<RankSchedule>> schedules;  ///< one per chunk; `depth` run in parallel
    std::size_t run = 0, stride = 0;  ///< stride of the buffer, as in Communicator::Operand
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
  };

  /// `stream` runs the additions; StreamWidth::one is enough. All arguments must outlive the executor.
  Executor(runtime::EventLoop& loop, runtime::Transport& transport, runtime::StreamView stream);
  /// With unfinished operations, only after the loop's last run.
  ~Executor();

  /// Calls `done` on the loop, after this returned, when this rank has finished every plan. The buffers must be
  /// complete before the call.
  void run(Operands operands, runtime::Handler done);

  /// Bytes of staging for these scripts, `dtype` and `depth`.
  [[nodiscard]] static std::size_t staging_bytes(const Operands& operands);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::collectives
