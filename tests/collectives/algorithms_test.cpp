#include "collectives/plans/algorithms.hpp"

#include "collectives/plans/recursive.hpp"
#include "collectives/plans/traffic.hpp"
#include "tests/collectives/plan_check.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

#include <bit>

using namespace ranvier::collectives;
using namespace ranvier::test;
using namespace ranvier::tests;

namespace {

std::size_t steps_of(const Plan& plan) {
  const std::size_t steps = plan.ranks[0].size();
  for (const auto& of_rank : plan.ranks) CHECK(of_rank.size() == steps);
  return steps;
}

unsigned log2_up(int count) { return std::bit_width(static_cast<unsigned>(count - 1)); }

/// As in the headers' tables.
std::size_t promised_steps(Collective collective, std::string_view name, int k, int n) {
  const int ranks = k * n;
  const bool reduces = collective != Collective::all_gather, gathers = collective != Collective::reduce_scatter;
  const auto twice = static_cast<std::size_t>(reduces && gathers ? 2 : 1);
  if (name == "ring") return twice * (ranks - 1);
  if (name == "recursive") return twice * log2_up(ranks);
  if (name == "hierarchical") return twice * (log2_up(k) + log2_up(n));
  if (name != "ho-ring") return twice * (k - 1 + n - 1);
  if (k == 1 || n == 1) return twice * (ranks - 1);
  return static_cast<std::size_t>((reduces ? 2 : 0) + (gathers ? 1 : 0)) * n * (k - 1);
}

}  // namespace

TEST_CASE(
    "every plan of any number of ranks in any rows passes the checker for any size and any number of chunks") {
  for (const Collective collective : all_collectives)
    for (const Algorithm& algorithm : algorithms(collective))
      for (int ranks = 1; ranks <= max_ranks; ++ranks)
        for (const Topology& topology : topologies_of(ranks))
          for (const std::size_t length : {0, 1, 2, 5, 17, 48})
            for (const int chunks : {1, 2, 3, 7})
              for (int chunk = 0; chunk < chunks; ++chunk)
                check(collective, algorithm.plan(topology, ranks * length, chunks, chunk), chunks, chunk);
}

TEST_CASE("an all-to-all of any number of ranks in any rows passes the checker, in one step per peer") {
  const Algorithm& direct = algorithm(Collective::all_to_all, "direct");
  for (int ranks = 1; ranks <= max_ranks; ++ranks)
    for (const Topology& topology : topologies_of(ranks))
      for (const std::size_t length : {0, 1, 2, 5, 17})
        for (const int chunks : {1, 2, 3, 7}) {
          const std::size_t elements = 2 * ranks * length;
          std::vector<Plan> plans;
          for (int chunk = 0; chunk < chunks; ++chunk) {
            plans.push_back(direct.plan(topology, elements, chunks, chunk));
            check(Collective::all_to_all, plans.back(), chunks, chunk);
            if (length >= static_cast<std::size_t>(chunks)) CHECK(steps_of(plans.back()) == ranks - 1u);
          }
          for (int rank = 0; rank < ranks; ++rank) {
            const auto schedules = direct.schedules(topology, elements, chunks, rank);
            for (int chunk = 0; chunk < chunks; ++chunk)
              CHECK(schedules[static_cast<std::size_t>(chunk)] ==
                    schedule_of(plans[static_cast<std::size_t>(chunk)], rank));
          }
          const Team team{topology, all_ranks(plans[0])};
          const Traffic planned = traffic_of(plans, topology);
          const Traffic counted = traffic_of(team, PlanChoice{}, {Collective::all_to_all, {elements}});
          CHECK(planned.intra_node == counted.intra_node);
          CHECK(planned.inter_node == counted.inter_node);
          CHECK(planned.max_inter_of_rank == counted.max_inter_of_rank);
          CHECK(planned.intra_node + planned.inter_node == length * ranks * (ranks - 1));
        }
}

TEST_CASE("the checker finds faults of an all-to-all") {
  const Topology topology = Topology::regular(3, 1);
  const Plan good = algorithm(Collective::all_to_all, "direct").plan(topology, 12);
  check(Collective::all_to_all, good);
  Plan other_piece = good;
  other_piece.ranks[0][0][1].range.begin += 2;
  CHECK_THROWS_WITH_AS(check(Collective::all_to_all, other_piece), doctest::Contains("sends elements"),
                       ranvier::Error);
  Plan other_slot = good;
  other_slot.ranks[0][0][0].range.begin = 6;
  CHECK_THROWS_WITH_AS(check(Collective::all_to_all, other_slot), doctest::Contains("contributions of rank"),
                       ranvier::Error);
}

TEST_CASE("larger clusters pass the checker too") {
  for (const auto& [inner, outer] : {std::pair{8, 4}, {4, 8}, {8, 3}, {5, 6}, {7, 5}}) {
    const Topology topology = Topology::regular(inner, outer);
    for (const Collective collective : all_collectives)
      for (const Algorithm& algorithm : algorithms(collective))
        check(collective, algorithm.plan(topology, 13u * inner * outer, 2, 1), 2, 1);
  }
}

TEST_CASE("plans have the steps and element counts of their headers") {
  for (int k = 1; k <= 8; ++k)
    for (int n = 1; n <= 5; ++n) {
      const Topology topology = Topology::regular(k, n);
      const std::size_t ranks = k * n, length = 84,
                        elements = ranks * length;  // 84 divides by all parts of a piece
      for (const Collective collective : all_collectives)
        for (const Algorithm& algorithm : algorithms(collective)) {
          CAPTURE_ALL(k, n, to_string(collective), algorithm.name);
          const Plan plan = algorithm.plan(topology, elements, 1, 0);
          const std::size_t times = collective == Collective::all_reduce ? 2 : 1;
          CHECK(steps_of(plan) == promised_steps(collective, algorithm.name, k, n));
          const Traffic traffic = traffic_of(plan, topology);
          CHECK(traffic.intra_node + traffic.inter_node == times * elements * (ranks - 1));
          if (algorithm.name == "ring") {
            CHECK(traffic.inter_node == (n > 1 ? times * n * length * (ranks - 1) : 0));
            CHECK(traffic.max_inter_of_node == (n > 1 ? times * length * (ranks - 1) : 0));
            CHECK(traffic.max_inter_of_rank == (n > 1 ? times * length * (ranks - 1) : 0));
            CHECK(traffic.max_intra_of_rank == (k > 1 ? times * length * (ranks - 1) : 0));
          } else if (algorithm.name != "recursive") {
            CHECK(traffic.inter_node == times * elements * (n - 1));
            CHECK(traffic.max_inter_of_node == times * length * (ranks - k));
            CHECK(traffic.max_inter_of_rank == times * length * (n - 1));
            CHECK(traffic.max_intra_of_rank == times * length * n * (k - 1));
          }
        }
    }
}

TEST_CASE("recursive plans cross nodes as little as hierarchical ones if sizes are powers of two") {
  const Topology topology = Topology::regular(4, 4);
  CHECK(traffic_of(algorithm(Collective::all_gather, "recursive").plan(topology, 1600), topology).inter_node ==
        1600 * 3);
}

TEST_CASE("contiguous pieces are one message: no piece is reordered") {
  for (const Algorithm& algorithm : algorithms(Collective::all_gather)) {
    // A ring's step has a send and a receive. HO-Ring has two rings; doubling runs may wrap.
    const std::size_t most = algorithm.name.ends_with("ring") && algorithm.name != "ho-ring" ? 2 : 4;
    for (const auto& of_rank : algorithm.plan(Topology::regular(4, 2), 800, 1, 0).ranks)
      for (const Step& step : of_rank) CHECK(step.size() <= most);
  }
  const Plan hierarchical = algorithm(Collective::all_gather, "hierarchical").plan(Topology::regular(2, 4), 800);
  for (const auto& of_rank : hierarchical.ranks) {
    CHECK(of_rank.back().size() == 2);
    CHECK(of_rank.back()[1].range.count == 400);
  }
}

TEST_CASE("HO-Ring keeps both kinds of links busy until the last node's pieces are in") {
  const Topology topology = Topology::regular(4, 3);
  const Plan plan = algorithm(Collective::all_gather, "ho-ring").plan(topology, 1200);
  for (std::size_t rank = 0; rank < 12; ++rank)
    for (std::size_t step = 0; step < 9; ++step) {
      bool intra = false, inter = false;
      for (const auto& [action, peer, range] : plan.ranks[rank][step])
        (topology.same_node(static_cast<int>(rank), peer) ? intra : inter) = true;
      CHECK(intra);
      CHECK(inter == (step < 6));
    }
}

TEST_CASE("every single operation of every plan is necessary") {
  for (const auto& [collective, name] : all_algorithms()) {
    CAPTURE(name);
    const Plan good = plan_of({collective, name, Topology::regular(3, 2), 24});
    for (std::size_t rank = 0; rank < good.ranks.size(); ++rank)
      for (std::size_t step = 0; step < good.ranks[rank].size(); ++step)
        for (std::size_t index = 0; index < good.ranks[rank][step].size(); ++index) {
          Plan plan = good;
          plan.ranks[rank][step].erase(plan.ranks[rank][step].begin() + static_cast<std::ptrdiff_t>(index));
          CHECK_THROWS_AS(check(collective, plan), ranvier::Error);
        }
  }
}

TEST_CASE("trees of 1 to 17 ranks pass the checker for any size, in the number of steps of their header") {
  for (unsigned ranks = 1; ranks <= 17; ++ranks)
    for (const std::size_t elements : {0, 1, 2, 13}) {
      const Plan plan = tree_all_reduce(static_cast<int>(ranks), elements);
      check_all_reduce(plan);
      if (elements > 0) CHECK(plan.ranks[0].size() == 2 * std::bit_width(ranks - 1));
      for (unsigned rank = 0; rank < ranks; ++rank) {
        const Plan one = tree_all_reduce(static_cast<int>(ranks), elements, static_cast<int>(rank));
        REQUIRE(one.ranks.size() == ranks);
        for (unsigned other = 0; other < ranks; ++other)
          CHECK(one.ranks[other] == (other == rank ? plan.ranks[other] : std::vector<Step>()));
      }
    }
}

TEST_CASE("one rank and no elements take no steps") {
  for (const Collective collective : all_collectives)
    for (const Algorithm& algorithm : algorithms(collective)) {
      CHECK(algorithm.plan(Topology::regular(1, 1), 10, 1, 0).ranks[0].empty());
      CHECK(algorithm.plan(Topology::regular(2, 3), 0, 1, 0).ranks[4].empty());
      CHECK(algorithm.plan(Topology::regular(3, 2), 6, 2, 0).ranks[5].empty());
    }
}

TEST_CASE("an unknown algorithm is refused with the flag and all names") {
  CHECK(algorithm(Collective::all_gather, "ho-ring").name == "ho-ring");
  const auto error = error_of([] { (void)algorithm(Collective::reduce_scatter, "torus"); });
  CHECK(says(error, ranvier::ErrorCode::usage, "`reduce_scatter`: unknown algorithm: torus",
             "ring, recursive, hierarchical, h-ring, ho-ring"));
}
