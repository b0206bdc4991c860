// In-place collectives among the ranks of one team. All members must start the same operations in the same order, as
// for NCCL. Implementations: PlanCommunicator, MpiCommunicator and NcclColumn's; QuantizedCommunicator packs messages
// for them. Loop thread only.
#pragma once

#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/topology.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::collectives {

class Communicator {
 public:
  /// A complete buffer; the team's ranks must divide `elements`, and this rank's piece is Topology::piece(me()).
  ///
  /// It may be strided: element x is stored at data + x / run · stride + x % run. So a part of every piece of a
  /// larger buffer can be reduced in place. All ranks use the same `run`.
  struct Operand {
    std::byte* data = nullptr;
    std::size_t elements = 0;  ///< elements, without gaps between runs
    std::size_t run = 0;       ///< elements; 0: contiguous
    std::size_t stride = 0;    ///< elements between the starts of two runs, at least `run`
  };

  /// An unfinished operation.
  struct UnderWay {
    std::string what;
    runtime::Duration since{};  ///< loop time
  };

  virtual ~Communicator() = default;

  [[nodiscard]] virtual const Team& team() const noexcept = 0;
  [[nodiscard]] virtual int me() const noexcept = 0;  ///< index in team().members

  /// Runs several parts as one operation without staging copies (coalescing, MiCS §4): each message contains that
  /// step's ranges of all parts. `what` names it for the user ("gather of h.3, step 12"). `done` runs on the loop
  /// after this returned. The data must be complete before the call.
  virtual void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
                   runtime::Handler done) = 0;

  /// Unfinished operations in the order of the calls, for reports about lost peers.
  [[nodiscard]] virtual std::vector<UnderWay> running() const { return {running_.begin(), running_.end()}; }

 protected:
  /// Adds an operation to running(). The returned handler removes it and calls `done`.
  [[nodiscard]] runtime::Handler tracked(std::string what, runtime::Duration since, runtime::Handler done) {
    const auto operation = running_.insert(running_.end(), {std::move(what), since});
    return [this, operation, done = std::move(done)] {
      running_.erase(operation);
      done();
    };
  }

 private:
  std::list<UnderWay> running_;
};

}  // namespace ranvier::collectives
