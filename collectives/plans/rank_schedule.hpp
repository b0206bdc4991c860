// Steps of a single rank of a plan, as executors keep them: a complete plan is P times as large. Pure data; any
// thread. Tests prove that sends and receives match in the step of the same number.
#pragma once

#include "collectives/plans/plan.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::collectives {

struct RankSchedule {
  struct Step {
    std::vector<Operation> operations;
    bool may_arrive_early = true;  ///< its receives do not touch data of the previous non-empty step

    friend bool operator==(const Step&, const Step&) = default;
  };

  std::size_t elements = 0;
  int ranks = 0;
  std::vector<Step> steps;  ///< including empty ones, so that equal step numbers correspond

  friend bool operator==(const RankSchedule&, const RankSchedule&) = default;
};

[[nodiscard]] RankSchedule schedule_of(const Plan& plan, int rank);
/// The same schedule with every range shifted by `distance`.
[[nodiscard]] RankSchedule shifted(RankSchedule schedule, std::size_t distance);

}  // namespace ranvier::collectives
