// The collectives of one rank by NCCL: one NCCL communicator for each kind of team that the rank's column has, and
// for the rows and columns of a team where hops are hierarchical, all made once.
//
//   NcclColumn column(loop, transport, device, *open_nccl(), options);
//   auto communicator = column.communicator(TeamKind::column, 0, ...);   // one for each flow of actors
//   column.connect(done);                                                // then they may run
//
// nccl_connections.hpp makes the communicators, nccl_phases.hpp says which operation is next and puts it on the GPU.
//
// An error is thrown on the loop, as one message with rank, device and operation. Loop thread only.
#pragma once

#include "collectives/communicator_factory.hpp"
#include "collectives/nccl_phases.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::collectives {

class NcclColumn final : public CommunicatorFactory {
 public:
  using Ways = std::array<NcclMode, 3>;  ///< by Collective

  struct Options {
    std::vector<int> ranks;  ///< MPI ranks of the column, by row
    Ways ways = {NcclMode::own, NcclMode::own, NcclMode::own};
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
  class Member;

  runtime::EventLoop& loop_;
  Options options_;
  std::shared_ptr<NcclConnections> connections_;
  std::shared_ptr<NcclPhases> phases_;
};

}  // namespace ranvier::collectives
