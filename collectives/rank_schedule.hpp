// One rank's part of a plan, which is what executors keep: a plan has the steps of all ranks, P times as many. Pure
// data; any thread.
//
// What a step moves between two ranks in one direction is one *message*. The checker proves that both ends see the
// same one: what a rank sends to another in a step, that one receives in its step of the same number.
#pragma once

#include "collectives/plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::collectives {

struct RankSchedule {
  struct Message {  // may go as several, see executor.hpp
    Action action = Action::send;
    int peer = 0;
    std::vector<Range> ranges;  ///< one after the other

    friend bool operator==(const Message&, const Message&) = default;
  };
  struct Step {
    std::vector<Message> messages;  ///< one for each peer and direction at most
    bool may_arrive_early = true;   ///< its receives write nothing that the busy step before works on

    friend bool operator==(const Step&, const Step&) = default;
  };

  std::size_t elements = 0;
  int ranks = 0;
  std::vector<Step> steps;  ///< idle ones too, so that those of several scripts of one algorithm correspond

  friend bool operator==(const RankSchedule&, const RankSchedule&) = default;
};

[[nodiscard]] RankSchedule schedule_of(const Plan& plan, int rank);
/// The same with every range `distance` further along.
[[nodiscard]] RankSchedule shifted(RankSchedule schedule, std::size_t distance);
[[nodiscard]] std::vector<RankSchedule> schedules_of(std::span<const Plan> plans, int rank);

}  // namespace ranvier::collectives
