#include "collectives/plans/rank_schedule.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::collectives {

namespace {

/// Returns whether the receives of `next` may write while `current` runs.
bool can_arrive_early(const Step& next, const Step& current) {
  for (const Operation& arriving : next) {
    if (arriving.action != Action::receive) continue;  // receives into staging, or sends
    for (const Operation& running : current) {
      if (arriving.range.overlaps(running.range)) return false;
    }
  }
  return true;
}

}  // namespace

RankSchedule schedule_of(const Plan& plan, int rank) {
  RankSchedule schedule{plan.elements, static_cast<int>(plan.ranks.size()), {}};
  const Step idle;
  const Step* busy = &idle;
  for (const Step& step : plan.ranks.at(rank)) {
    for (const auto& [action, peer, range] : step) {
      // Both ends send and receive the ranges between them in this step as one message.
      const bool both =
          action == Action::receive && std::any_of(step.begin(), step.end(), [from = peer](const Operation& other) {
            return other.action == Action::receive_add && other.peer == from;
          });
      expect(!both, "{}: rank {} both copies and adds data of one step from rank {}", plan.name, rank, peer);
    }
    schedule.steps.push_back({step});
    if (step.empty()) continue;
    schedule.steps.back().may_arrive_early = can_arrive_early(step, *busy);
    busy = &step;
  }
  return schedule;
}

RankSchedule shifted(RankSchedule schedule, std::size_t distance) {
  for (RankSchedule::Step& step : schedule.steps) {
    for (Operation& operation : step.operations) operation.range.begin += distance;
  }
  return schedule;
}

}  // namespace ranvier::collectives
