// Collectives among the ranks of one team, in place. All members start the same operations in the same order, as
// NCCL wants it. Implementations: PlanCommunicator, MpiCommunicator, and those of NcclColumn. Loop thread only.
#pragma once

#include "collectives/algorithms.hpp"
#include "collectives/topology.hpp"
#include "runtime/dtype.hpp"
#include "runtime/event_loop.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ranvier::collectives {

class Communicator {
 public:
  /// A whole buffer; `elements` divides by the team's ranks, and this rank's piece is Topology::piece(me()).
  ///
  /// It may lie in runs: element x at data + x / run · stride + x % run, so that a slice of every piece of
  /// something larger is reduced where it lies. All ranks name the same run.
  struct Operand {
    std::byte* data = nullptr;
    std::size_t elements = 0;  ///< its own, without what lies between runs
    std::size_t run = 0;       ///< elements; 0: the part is contiguous
    std::size_t stride = 0;    ///< elements from the begin of a run to that of the next one, no fewer than `run`
  };

  /// An operation that has begun and not ended.
  struct UnderWay {
    std::string what;
    runtime::Duration since{};  ///< loop time
  };

  virtual ~Communicator() = default;

  [[nodiscard]] virtual const Team& team() const noexcept = 0;
  [[nodiscard]] virtual int me() const noexcept = 0;  ///< index in team().members

  /// Several parts go as one operation without staging copies (coalescing, MiCS §4): each message carries that
  /// step's ranges of all of them. `what` names it for people ("gather of h.3, step 12"). `done` runs on the loop
  /// after this returned. The caller made sure that what wrote the data has finished.
  virtual void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
                   runtime::Handler done) = 0;

  /// In the order of the calls, for a report about a peer that is lost.
  [[nodiscard]] virtual std::vector<UnderWay> running() const = 0;
};

}  // namespace ranvier::collectives
