// Runs one rank's part of plans over a transport: sends and receives of a step at once, additions on a device
// stream, the next step when all of it is done. Half precision is added in float and rounded once per addition.
//
// An operation may have several parts, each a buffer of its own: a message then carries that step's ranges of all
// of them, without a copy (coalescing, MiCS §4). Ranges of 8 KiB and more go by themselves: MPI moves a contiguous
// one at the link's rate, and what is scattered several times slower. A range of a part that lies in runs counts as
// several, cut where runs end.
//
// One executor serves one rank. Several operations may run at a time; those that share a pair of ranks need
// different `index`. All ranks of an operation start it with scripts of the same plans, and the same index. Loop
// thread only.
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
  /// All parts of an operation have scripts of one algorithm for one team, equally many.
  struct Operand {
    std::byte* data = nullptr;  ///< the buffer, script.elements of dtype
    std::shared_ptr<const std::vector<RankSchedule>>
        schedules;                    ///< one per chunk; run side by side, `depth` at a time
    std::size_t run = 0, stride = 0;  ///< where it lies in runs, as in Communicator::Operand
  };

  struct Operands {
    std::vector<Operand> parts;
    std::vector<int> members;      ///< MPI rank of each of the plan's ranks
    int me = 0;                    ///< this rank's index in `members`
    std::byte* staging = nullptr;  ///< staging_bytes(...), not shared with another running operation
    runtime::DType dtype = runtime::DType::f32;
    runtime::Channel channel = runtime::Channel::collective;
    std::uint32_t index = 0;  ///< first of as many consecutive tags as there are chunks
    int depth = 2;            ///< chunks in flight
  };

  /// `stream` runs the additions; StreamWidth::one fits. All outlive the executor.
  Executor(runtime::EventLoop& loop, runtime::Transport& transport, runtime::StreamView stream);
  /// With operations unfinished, only after the loop's last run.
  ~Executor();

  /// Calls `done` on the loop, after this returned, when this rank's part of every plan is complete. The caller
  /// makes sure that what wrote the buffers has finished.
  void run(Operands operands, runtime::Handler done);

  /// Follows from the scripts, `dtype` and `depth`.
  [[nodiscard]] static std::size_t staging_bytes(const Operands& operands);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::collectives
