// NCCL backend of one rank. Creates an NCCL communicator per kind of team of the rank's column, and for the rows and
// columns of hierarchical teams, once (nccl_connections.hpp). nccl_phases.hpp orders and launches the operations.
//
//   NcclColumn column(loop, transport, device, *open_nccl(), options);
//   auto communicator = column.communicator(TeamKind::column, 0, ...);   // one per flow of actors
//   column.connect(done);                                                // operations may run after `done`
//
// Errors are thrown on the loop as one message with rank, device and operation. Loop thread only.
#pragma once

#include "collectives/communicators/communicator_factory.hpp"
#include "collectives/nccl/nccl_phases.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::collectives {

class NcclColumn final : public CommunicatorFactory {
 public:
  struct Options {
    std::vector<int> ranks;  ///< MPI ranks of the column, by row
    NcclModes ways = {NcclMode::own, NcclMode::own, NcclMode::own};
    runtime::Duration timeout = std::chrono::seconds(60);  ///< timeout for peers to connect
  };

  /// All arguments must outlive it; `library` belongs to the device.
  NcclColumn(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, NcclLibrary& library,
             Options options);
  /// Like close().
  ~NcclColumn() override;

  /// Call before connect(); this must outlive it.
  [[nodiscard]] std::unique_ptr<Communicator> communicator(TeamKind team, int number,
                                                           PlanCommunicator::Options options) override;

  [[nodiscard]] bool sums_alike() const noexcept override { return sums_follow_plans(options_.ways); }

  /// Creates NCCL's communicators; collective over the column. Then calls `done` on the loop. Throws on the loop if a
  /// rank is missing.
  void connect(runtime::Handler done);

  /// Operations that this rank waits for, as pending messages: the watchdog then checks those ranks.
  [[nodiscard]] std::vector<runtime::Transport::Pending> waited_for() const;

  /// Frees NCCL's communicators: gracefully if idle, otherwise aborts operations that wait for other ranks. Call
  /// before freeing memory of operations. May be called again.
  void close() noexcept;

 private:
  class Member;

  runtime::EventLoop& loop_;
  Options options_;
  std::shared_ptr<NcclConnections> connections_;
  std::shared_ptr<NcclPhases> phases_;
};

}  // namespace ranvier::collectives
