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
    RankSchedule::Step& made = schedule.steps.emplace_back();
    for (const auto& [action, peer, range] : step) {
      const auto same =
          std::find_if(made.messages.begin(), made.messages.end(),
                       [sends = action == Action::send, peer = peer](const RankSchedule::Message& message) {
                         return message.peer == peer && (message.action == Action::send) == sends;
                       });
      if (same == made.messages.end()) {
        made.messages.push_back({action, peer, {range}});
        continue;
      }
      expect(same->action == action, "{}: rank {} both copies and adds data of one step from rank {}", plan.name,
             rank, peer);
      same->ranges.push_back(range);
    }
    if (step.empty()) continue;
    made.may_arrive_early = can_arrive_early(step, *busy);
    busy = &step;
  }
  return schedule;
}

RankSchedule shifted(RankSchedule schedule, std::size_t distance) {
  for (RankSchedule::Step& step : schedule.steps) {
    for (RankSchedule::Message& message : step.messages) {
      for (Range& range : message.ranges) range.begin += distance;
    }
  }
  return schedule;
}

}  // namespace ranvier::collectives
