// The collectives of one rank by NCCL: one NCCL communicator for each kind of team that the rank's column has, made
// once, and all operations one after another on one stream of the GPU.
//
//   NcclColumn column(loop, transport, device, *open_nccl(), options);
//   auto communicator = column.communicator(TeamKind::column, 0, ...);   // one for each flow of actors
//   column.connect(done);                                                // then they may run
//
// NCCL's kernels wait on the GPU for those of the other ranks. Two operations that two ranks start in different
// orders would wait for ever, and ranks do start them in different orders, as soon as they belong to different
// communicators: each rank submits the next hop of a unit when the hop before it is done there. So the first rank
// of the column says in a message which operation it starts next, and the others keep that order. What it has
// started it did not wait for others with, and so none of the others does: all rows of a column do the same. A
// column with one flow needs no such word.
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
  /// On a stream of the caller's.
  NcclColumn(runtime::EventLoop& loop, runtime::Transport& transport, std::unique_ptr<runtime::Stream> stream,
             NcclLibrary& library, Options options);
  /// As close().
  ~NcclColumn() override;

  /// Before connect().
  [[nodiscard]] std::unique_ptr<Communicator> communicator(TeamKind team, int number,
                                                           PlanCommunicator::Options options) override;

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
