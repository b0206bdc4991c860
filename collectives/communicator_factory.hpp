// Who makes the communicators of a rank's column, where they are not to run plans over messages. Loop thread only.
#pragma once

#include "collectives/plan_communicator.hpp"
#include "collectives/shard.hpp"

#include <memory>

namespace ranvier::collectives {

class CommunicatorFactory {
 public:
  virtual ~CommunicatorFactory() = default;

  /// `number` tells the communicators of a rank apart, the same on all ranks. The source outlives what it makes.
  [[nodiscard]] virtual std::unique_ptr<Communicator> communicator(TeamKind team, int number,
                                                                   PlanCommunicator::Options options) = 0;

  /// Whether columns that reduce equal numbers get equal bits.
  [[nodiscard]] virtual bool sums_alike() const noexcept = 0;
};

}  // namespace ranvier::collectives
