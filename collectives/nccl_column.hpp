// The collectives of one rank by NCCL: one NCCL communicator for each kind of team that the rank's column has, and
// for the rows and columns of a team where hops are hierarchical, all made once.
//
//   NcclColumn column(loop, transport, device, *open_nccl(), options);
//   auto communicator = column.communicator(TeamKind::column, 0, ...);   // one for each flow of actors
//   column.connect(done);                                                // then they may run
//
// Two lanes, each a stream of the GPU: communicators whose ranks share a node go on one, those that cross nodes on the
// other. So one operation is inside the nodes while another one is between them (MiCS §3.3, PaRO §3.3). The stages
// of an operation that share a communicator are a phase; an event orders a phase after the one before it on the
// other lane.
//
// NCCL's kernels wait on the GPU for those of the other ranks, so ranks that begin two operations in different orders
// may wait for ever. NCCL's guide ("Using multiple NCCL communicators concurrently") asks for one order of the calls on
// all ranks, and warns that kernels of several communicators must fit on the GPU together. Two rules give both:
//
//   calls    All ranks call phases in one order, and the next one only when the one before is on its stream. Ranks
//            submit operations in different orders, so the first rank of the column says in a message which phase comes
//            next. What it has started it did not wait for others with, and so none of the others does: all rows of a
//            column do the same. A column with one flow of one phase needs no such word.
//   kernels  A kernel begins once the kernel of the call before it has all its room on the GPU, whatever its lane
//            (NcclLibrary::keeps_launch_order()). So of all phases that are not over, the first has room on every rank
//            as soon as what computes there ends, and so it ends; then the next. Where NCCL does not order kernels
//            both lanes are one stream.
//
// A kernel that waits for its turn holds up those behind it on both lanes. So the first rank names a phase no sooner
// than is of use: two at a time on a lane, one that runs and one to follow it; and the next phase of an operation when
// the one before it has begun. Operations that were submitted first go first.
//
// Nothing here waits: what NCCL does in threads of its own, and errors that it meets later, is asked for by timers.
// An error is thrown on the loop, as one message with rank, device and operation. Loop thread only.
#pragma once

#include "collectives/communicator_source.hpp"
#include "collectives/nccl_library.hpp"
#include "collectives/nccl_stages.hpp"
#include "runtime/device.hpp"
#include "runtime/event_loop.hpp"
#include "runtime/transport.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::collectives {

class NcclColumn final : public CommunicatorSource {
 public:
  struct Options {
    std::vector<int> ranks;  ///< MPI ranks of the column, by row
    /// By Collective.
    std::array<NcclWay, 3> ways = {NcclWay::own, NcclWay::own, NcclWay::own};
    runtime::Duration timeout = std::chrono::seconds(60);  ///< for peers to connect
  };

  /// All outlive it; `library` is made for the device.
  NcclColumn(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, NcclLibrary& library,
             Options options);
  /// As close().
  ~NcclColumn() override;

  /// Before connect().
  [[nodiscard]] std::unique_ptr<Communicator> communicator(TeamKind team, int number,
                                                           PlanCommunicator::Options options) override;

  /// Where all sums follow plans; NCCL chooses by the links of a column.
  [[nodiscard]] bool sums_alike() const noexcept override;

  /// Makes NCCL's communicators with the other ranks of the column, all of which call this; then calls `done` on
  /// the loop. Throws on the loop where one of them does not come.
  void connect(runtime::Handler done);

  /// What this rank waits for, as messages from those ranks would be: a watchdog then asks whether they live.
  [[nodiscard]] std::vector<runtime::Transport::Pending> waited_for() const;

  /// Frees NCCL's communicators, orderly where nothing is under way; otherwise ends at once what waits for other
  /// ranks. Comes before memory is freed that an operation may use. May be called again.
  void close() noexcept;

 private:
  struct State;
  class Member;
  std::shared_ptr<State> state_;
};

}  // namespace ranvier::collectives
