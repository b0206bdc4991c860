#include "collectives/plans/rank_schedule.hpp"

#include "collectives/plans/algorithms.hpp"
#include "runtime/base/error.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;

TEST_CASE("a rank's schedule has its operations, and keeps idle steps") {
  Plan plan{"by hand", 10, std::vector<std::vector<Step>>(3)};
  plan.ranks[1] = {
      {{Action::send, 0, {0, 2}}, {Action::receive, 0, {8, 1}}}, {}, {{Action::receive_add, 2, {0, 2}}}};
  const RankSchedule schedule = schedule_of(plan, 1);
  CHECK(schedule.elements == 10);
  CHECK(schedule.ranks == 3);
  REQUIRE(schedule.steps.size() == 3);
  for (std::size_t step = 0; step < 3; ++step) CHECK(schedule.steps[step].operations == plan.ranks[1][step]);
}

TEST_CASE(
    "a receive may not arrive early if the previous busy step does work, with any number of idle steps between") {
  Plan plan{"by hand", 10, std::vector<std::vector<Step>>(2)};
  plan.ranks[0] = {{{Action::send, 1, {0, 2}}}, {}, {{Action::receive, 1, {1, 2}}}, {{Action::receive, 1, {5, 2}}}};
  const RankSchedule schedule = schedule_of(plan, 0);
  CHECK(!schedule.steps[2].may_arrive_early);
  CHECK(schedule.steps[3].may_arrive_early);
}

TEST_CASE("an algorithm's rank schedules equal the ones made from its plans, for any number of chunks") {
  for (const Collective collective : ranvier::test::all_collectives)
    for (const Algorithm& algorithm : algorithms(collective))
      for (const auto& [inner, outer] : {std::pair{1, 1}, {2, 1}, {1, 3}, {2, 2}, {3, 2}, {4, 2}}) {
        const Topology topology = Topology::regular(inner, outer);
        for (const std::size_t length : {0, 1, 2, 7, 40})
          for (const int chunks : {1, 2, 3, 5, 8}) {
            CAPTURE(algorithm.name);
            const std::size_t elements = length * static_cast<std::size_t>(topology.ranks());
            const auto plans = ranvier::test::plans_of(algorithm, topology, elements, chunks);
            for (int rank = 0; rank < topology.ranks(); ++rank)
              CHECK(algorithm.schedules(topology, elements, chunks, rank) ==
                    ranvier::test::schedules_of(plans, rank));
          }
      }
}

TEST_CASE("a step that both stores and adds data from one rank is refused: it would be one message") {
  Plan plan{"by hand", 10, std::vector<std::vector<Step>>(2)};
  plan.ranks[0] = {{{Action::receive, 1, {0, 2}}, {Action::receive_add, 1, {5, 2}}}};
  CHECK_THROWS_AS((void)schedule_of(plan, 0), ranvier::Error);
}
