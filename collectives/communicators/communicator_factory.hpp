// Creates a column's communicators for backends other than plans over messages (NCCL). Loop thread only.
#pragma once

#include "collectives/communicators/plan_communicator.hpp"
#include "collectives/plans/shard.hpp"

#include <memory>

namespace ranvier::collectives {

class CommunicatorFactory {
 public:
  virtual ~CommunicatorFactory() = default;

  /// `number` identifies a communicator of a rank, the same on all ranks. The factory must outlive its communicators.
  [[nodiscard]] virtual std::unique_ptr<Communicator> communicator(TeamKind team, int number,
                                                                   PlanCommunicator::Options options) = 0;

  /// Whether columns that reduce equal numbers get equal bits.
  [[nodiscard]] virtual bool sums_alike() const noexcept = 0;
};

}  // namespace ranvier::collectives
