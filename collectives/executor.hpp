// Runs plans over a transport: sends and receives of a step at once, additions on a device stream, the next
// step when all of it is done. Half precision is added in float and rounded once per addition.
//
// One executor serves one rank. Several operations may run at a time; those that share a pair of ranks need
// different `index`. All ranks of an operation start it with the same plan and index. Loop thread only.
#pragma once

#include "collectives/plan.hpp"
#include "runtime/device.hpp"
#include "runtime/dtype.hpp"
#include "runtime/transport.hpp"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::collectives {

class Executor {
 public:
  struct Operands {
    std::shared_ptr<const std::vector<Plan>> plans;  ///< one per chunk; run side by side, `depth` at a time
    std::vector<int> members;                        ///< MPI rank of each of the plan's ranks
    int me = 0;                                      ///< this rank's index in `members`
    std::byte* data = nullptr;                       ///< the buffer, plan.elements of dtype
    std::byte* staging = nullptr;  ///< staging_bytes(...), not shared with another running operation
    runtime::DType dtype = runtime::DType::f32;
    runtime::Channel channel = runtime::Channel::collective;
    std::uint32_t index = 0;  ///< first of plans.size() consecutive tags
    int depth = 2;            ///< chunks in flight
  };

  /// `stream` runs the additions; StreamWidth::one fits. All outlive the executor.
  Executor(runtime::EventLoop& loop, runtime::Transport& transport, runtime::StreamView stream);
  /// With operations unfinished, only after the loop's last run.
  ~Executor();

  /// Calls `done` on the loop, after this returned, when this rank's part of every plan is complete. The caller
  /// makes sure that what wrote `data` has finished.
  void run(Operands operands, runtime::Handler done);

  [[nodiscard]] static std::size_t staging_bytes(std::span<const Plan> plans, int me, runtime::DType dtype,
                                                 int depth);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::collectives
