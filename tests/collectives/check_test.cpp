#include "collectives/plans/plan.hpp"
#include "collectives/plans/recursive.hpp"
#include "runtime/base/error.hpp"
#include "tests/collectives/plan_check.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

using namespace ranvier::collectives;
using ranvier::tests::check_has;

namespace {

constexpr int ranks = 4;
constexpr std::size_t elements = 16;

Plan ring(Collective collective = Collective::all_reduce, const Topology& topology = Topology::regular(ranks, 1)) {
  return algorithm(collective, "ring").plan(topology, elements);
}

constexpr auto gathers = [](const Plan& plan) { check_all_gather(plan); };
constexpr auto scatters = [](const Plan& plan) { check_reduce_scatter(plan); };

/// Error message of the checker; empty if it finds nothing.
template <typename Check>
std::string fault(const Plan& plan, Check check) {
  try {
    check(plan);
  } catch (const ranvier::Error& error) {
    CHECK(error.code() == ranvier::ErrorCode::internal);
    return error.what();
  }
  return "";
}

std::string fault(const Plan& plan) {
  return fault(plan, [](const Plan& wrong) { check_all_reduce(wrong); });
}

Operation& receive(Plan& plan, int rank, int step) { return plan.ranks[rank][step][0]; }
Operation& send(Plan& plan, int rank, int step) { return plan.ranks[rank][step][1]; }

}  // namespace

TEST_CASE("a mistake in a ring's plan is found and named") {
  struct Mistake {
    std::string name;
    std::function<void(Plan&)> make;
    const char* words;
  };
  const Mistake mistakes[] = {
      {"a dropped send leaves its receiver waiting forever: the next send arrives instead",
       [](Plan& plan) { plan.ranks[2][1].pop_back(); }, "matches a send of elements"},
      {"a dropped last send leaves its receiver waiting forever",
       [](Plan& plan) { plan.ranks[2].back().pop_back(); }, "rank 3, step 5: receive from rank 2"},
      {"a dropped receive leaves its sender waiting forever",
       [](Plan& plan) { plan.ranks[2].back().erase(plan.ranks[2].back().begin()); },
       "rank 1, step 5: send to rank 2"},
      {"a missing step of all ranks leaves contributions missing",
       [](Plan& plan) {
         for (auto& steps : plan.ranks) steps.pop_back();
       },
       "0 contributions of rank"},
      {"a value added where it should replace is counted twice",
       [](Plan& plan) { receive(plan, 1, 3).action = Action::receive_add; }, "contributions of rank"},
      {"a value that replaces where it should be added loses contributions",
       [](Plan& plan) { receive(plan, 1, 0).action = Action::receive; }, "0 contributions of rank 1"},
      {"a send is matched by a receive of another step",
       [](Plan& plan) { plan.ranks[1].insert(plan.ranks[1].begin(), Step{}); }, "matches a send of step 0"},
      {"swapped ranges", [](Plan& plan) { std::swap(send(plan, 1, 0).range, receive(plan, 1, 0).range); },
       "matches a send of elements"},
      {"a shifted range", [](Plan& plan) { ++send(plan, 1, 0).range.begin; }, "matches a send of elements"},
      {"a shorter range", [](Plan& plan) { --send(plan, 1, 1).range.count; }, "matches a send of elements"},
      {"a range that is wrong on both sides, so that only the sums reveal it",
       [](Plan& plan) { send(plan, 1, 1).range = receive(plan, 2, 1).range = {0, 1}; }, ""},
      {"a wrong peer", [](Plan& plan) { send(plan, 0, 0).peer = 2; }, "never completes"},
      {"a peer past the ranks", [](Plan& plan) { send(plan, 0, 0).peer = ranks; }, "unknown rank"},
      {"a negative peer", [](Plan& plan) { send(plan, 0, 0).peer = -1; }, "unknown rank"},
      {"the rank as its own peer", [](Plan& plan) { send(plan, 0, 0).peer = 0; }, "the rank itself"},
      {"a range outside the buffer", [](Plan& plan) { send(plan, 0, 0).range = {elements - 1, 2}; },
       "is outside the buffer"},
      {"a range whose end overflows",
       [](Plan& plan) { send(plan, 0, 0).range = {static_cast<std::size_t>(-1), 2}; }, "is outside the buffer"}};
  for (const auto& [name, make, words] : mistakes) {
    CAPTURE(name);
    Plan plan = ring();
    make(plan);
    CHECK(fault(plan) != "");
    check_has(fault(plan), {words});
  }
}

TEST_CASE("a missing step of one rank is found") {
  for (int rank = 0; rank < ranks; ++rank)
    for (int step = 0; step < 2 * (ranks - 1); ++step) {
      Plan plan = ring();
      plan.ranks[rank].erase(plan.ranks[rank].begin() + step);
      CHECK(fault(plan) != "");
    }
}

TEST_CASE("an addition that is done twice is counted twice") {
  Plan plan = ring(Collective::reduce_scatter);
  // One additional exchange of the last piece between neighbors.
  plan.ranks[0].push_back({{Action::send, 1, {0, 4}}});
  plan.ranks[1].push_back({{Action::receive_add, 0, {0, 4}}});
  CHECK(fault(plan, scatters) == "");  // rank 1 does not own piece 0
  plan.ranks[1].push_back({{Action::send, 0, {0, 4}}});
  plan.ranks[0].push_back({{Action::receive_add, 1, {0, 4}}});
  check_has(fault(plan, scatters), {"rank 0 ends with"});
}

TEST_CASE("a range that a step reads and writes is a conflict, as is a range written twice") {
  Plan plan{"exchange", 4, {{{{Action::send, 1, {0, 4}}, {Action::receive_add, 1, {3, 1}}}}, {}}};
  check_has(fault(plan),
            {"rank 0, step 0: receive and add from rank 1 of elements [3, 4) conflicts with send to rank 1"});
  plan.ranks[0][0][0].action = Action::receive;
  check_has(fault(plan), {"conflicts with receive from rank 1"});
  plan.ranks[0][0] = {{Action::send, 1, {0, 4}}, {Action::send, 1, {0, 4}}};
  CHECK(fault(plan).find("conflicts") == std::string::npos);
}

TEST_CASE("ranks that all receive before they send wait forever") {
  Plan plan{"exchange in turn", 2, {}};
  for (const int rank : {0, 1}) {
    const Range mine{static_cast<std::size_t>(rank), 1}, other{1 - mine.begin, 1};
    plan.ranks.push_back({{{Action::receive, 1 - rank, other}}, {{Action::send, 1 - rank, mine}}});
  }
  check_has(fault(plan, gathers), {"never completes"});
  // Sending first would block as well: a long message needs its receive.
  for (auto& steps : plan.ranks) std::swap(steps[0], steps[1]);
  check_has(fault(plan, gathers), {"never completes"});
  for (auto& steps : plan.ranks) steps = {{steps[0][0], steps[1][0]}};
  check_all_gather(plan);
}

TEST_CASE("a chunk's plan must not touch elements outside its chunk") {
  constexpr int chunks = 2;
  Plan plan = algorithm(Collective::all_reduce, "ring").plan(Topology::regular(ranks, 1), elements, chunks, 0);
  check_all_reduce(plan, chunks, 0);
  CHECK(fault(plan, [](const Plan& wrong) { check_all_reduce(wrong, chunks, 1); }) != "");
  CHECK(fault(ring(), [](const Plan& wrong) { check_all_reduce(wrong, chunks, 0); }) != "");
}

TEST_CASE("a plan passes only the check of its collective") {
  CHECK(fault(ring(Collective::reduce_scatter)) != "");
  CHECK(fault(ring(Collective::all_gather)) != "");
  CHECK(fault(ring(), gathers) != "");
  CHECK(fault(tree_all_reduce(ranks, elements), scatters) == "");
}

TEST_CASE("a plan declares which piece each rank owns, and is checked for it") {
  Plan plan = ring(Collective::all_gather, Topology::regular(2, 2));
  CHECK(plan.pieces == std::vector{0, 2, 1, 3});
  check_all_gather(plan);
  plan.pieces = {};
  check_has(fault(plan, gathers), {"contributions of rank"});
  plan.pieces = {0, 1, 2, 2};
  check_has(fault(plan, gathers), {"one piece each"});
  plan.pieces = {0, 1, 2};
  check_has(fault(plan, gathers), {"one piece each"});

  Plan scatter = ring(Collective::reduce_scatter, Topology::regular(2, 2));
  CHECK(fault(scatter, scatters) == "");
  std::swap(scatter.pieces[1], scatter.pieces[2]);
  check_has(fault(scatter, scatters), {"contributions of rank"});
}
