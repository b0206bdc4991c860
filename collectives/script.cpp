#include "collectives/script.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::collectives {

namespace {

bool overlap(const Range& left, const Range& right) {
  return left.begin < right.begin + right.count && right.begin < left.begin + left.count;
}

/// Whether the receives of `next` may write while `current` runs.
bool can_arrive_early(const Step& next, const Step& current) {
  for (const Operation& arriving : next) {
    if (arriving.action != Action::receive) continue;  // to staging, or nothing arrives
    for (const Operation& running : current) {
      if (overlap(arriving.range, running.range)) return false;
    }
  }
  return true;
}

}  // namespace

Script script_of(const Plan& plan, int rank) {
  Script script{plan.elements, static_cast<int>(plan.ranks.size()), {}};
  const Step idle;
  const Step* busy = &idle;
  for (const Step& step : plan.ranks.at(rank)) {
    Script::Step& made = script.steps.emplace_back();
    for (const auto& [action, peer, range] : step) {
      const auto same = std::find_if(made.messages.begin(), made.messages.end(),
                                     [sends = action == Action::send, peer = peer](const Script::Message& message) {
                                       return message.peer == peer && (message.action == Action::send) == sends;
                                     });
      if (same == made.messages.end()) {
        made.messages.push_back({action, peer, {range}});
        continue;
      }
      expect(same->action == action, "{}: rank {} both keeps and adds what one step brings from rank {}", plan.name,
             rank, peer);
      same->ranges.push_back(range);
    }
    if (step.empty()) continue;
    made.may_arrive_early = can_arrive_early(step, *busy);
    busy = &step;
  }
  return script;
}

Script shifted(Script script, std::size_t distance) {
  for (Script::Step& step : script.steps) {
    for (Script::Message& message : step.messages) {
      for (Range& range : message.ranges) range.begin += distance;
    }
  }
  return script;
}

std::vector<Script> scripts_of(std::span<const Plan> plans, int rank) {
  std::vector<Script> scripts;
  for (const Plan& plan : plans) scripts.push_back(script_of(plan, rank));
  return scripts;
}

}  // namespace ranvier::collectives
