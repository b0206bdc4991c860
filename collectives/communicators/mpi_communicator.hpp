// Communicator on MPI's own collectives, for comparison with plans. MPI chooses the order of its sums, does not add
// half precision, and runs the parts of an operation one by one. Loop thread only.
#pragma once

#include "collectives/communicators/communicator.hpp"
#include "runtime/transport/mpi_collectives.hpp"

#include <span>
#include <string>
#include <vector>

namespace ranvier::collectives {

class MpiCommunicator final : public Communicator {
 public:
  /// `ranks`: MPI rank of each member. Collective and blocking: all members construct it before their loops run,
  /// several communicators in the same order. Session and loop must outlive it.
  MpiCommunicator(runtime::MpiSession& session, runtime::EventLoop& loop, Team team, int me,
                  const std::vector<int>& ranks);

  [[nodiscard]] const Team& team() const noexcept override { return team_; }
  [[nodiscard]] int me() const noexcept override { return me_; }
  /// Throws ErrorCode::usage for sums of half precision. Parts must be contiguous.
  void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
           runtime::Handler done) override;

 private:
  runtime::EventLoop* loop_;
  Team team_;
  int me_;
  runtime::MpiCollectives mpi_;
};

}  // namespace ranvier::collectives
