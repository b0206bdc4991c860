#include "collectives/plans/cost.hpp"

#include "collectives/plans/algorithms.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

#include <map>
#include <string_view>

using namespace ranvier::collectives;
using doctest::Approx;

namespace {

constexpr double unlimited = 1e30;

/// No latency; rates in elements of one byte.
Conditions rates(Link intra, Link inter) { return {.links = {intra, inter}, .element_bytes = 1}; }

Plan gather(std::string_view name, const Topology& topology, std::size_t elements) {
  return algorithm(Collective::all_gather, name).plan(topology, elements);
}

}  // namespace

TEST_CASE("a step takes the time of its busiest rank or node") {
  // Two nodes of two. Rank 0 sends 6 elements inside its node and 4 to the other, rank 1 sends 5 to the other.
  const Topology topology = Topology::regular(2, 2);
  Plan plan{"a step", 20, std::vector<std::vector<Step>>(4, std::vector<Step>(1))};
  const auto move = [&](int from, int to, Range range) {
    plan.ranks[from][0].push_back({Action::send, to, range});
    plan.ranks[to][0].push_back({Action::receive, from, range});
  };
  move(0, 1, {0, 6});
  move(0, 2, {6, 4});
  move(1, 3, {10, 5});
  CHECK(seconds(plan, topology, rates({0, 1, unlimited}, {0, unlimited, unlimited})) == Approx(6));
  CHECK(seconds(plan, topology, rates({0, unlimited, unlimited}, {0, 1, unlimited})) == Approx(5));
  CHECK(seconds(plan, topology, rates({0, unlimited, unlimited}, {0, 1, 1})) == Approx(9));
  CHECK(seconds(plan, topology, rates({0, unlimited, 2}, {0, 1, unlimited})) == Approx(5));
  CHECK(seconds(plan, topology, rates({100, 1, unlimited}, {7, 1, 1})) == Approx(106));
  Conditions wide = rates({0, unlimited, unlimited}, {0, 1, 1});
  wide.element_bytes = 4;
  CHECK(seconds(plan, topology, wide) == Approx(36));
}

TEST_CASE("a ring takes its number of steps times the time of latency and a piece") {
  const Conditions conditions = rates({2, 10, unlimited}, {2, 10, unlimited});
  const Topology five = Topology::regular(5, 1), one = Topology::regular(1, 1);
  CHECK(seconds(gather("ring", five, 500), five, conditions) == Approx(4 * (2 + 10)));
  CHECK(seconds(gather("ring", one, 500), one, conditions) == 0);
  CHECK(seconds(gather("ring", five, 0), five, conditions) == 0);
}

TEST_CASE("chunks in flight overlap until the busiest link is full") {
  // A piece takes 1 inside a node and 2 across nodes. H-Ring uses the inter-node link for 2 of 4, intra-node links for
  // 2 of 4.
  const Topology topology = Topology::regular(2, 2);
  Conditions conditions = rates({0, 1, unlimited}, {0, 0.5, unlimited});
  const Plan plan = gather("h-ring", topology, 4);
  CHECK(seconds(plan, topology, conditions) == Approx(4));
  conditions.chunks = 10;
  CHECK(seconds(plan, topology, conditions) == Approx(4 + 9 * 4));
  conditions.depth = 2;
  CHECK(seconds(plan, topology, conditions) == Approx(4 + 9 * 2));
  conditions.depth = 9;
  CHECK(seconds(plan, topology, conditions) == Approx(4 + 9 * 2));
}

TEST_CASE("HO-Ring takes two thirds of H-Ring's time on two nodes of 8 if both link classes take equal time") {
  const Topology topology = Topology::regular(8, 2);
  // Seven pieces move inside a node in the time of one across nodes.
  const Conditions conditions = rates({0, 7, unlimited}, {0, 1, unlimited});
  const auto ratio = [&](Collective collective) {
    const auto time = [&](const char* name) {
      return seconds(algorithm(collective, name).plan(topology, 16 * 7 * 8 * 2), topology, conditions);
    };
    return time("ho-ring") / time("h-ring");
  };
  CHECK(ratio(Collective::all_gather) == Approx(2.0 / 3));
  // Half an additional intra-node hop before the inter-node transfers start.
  CHECK(ratio(Collective::reduce_scatter) == Approx(2.0 / 3).epsilon(0.05));
}

TEST_CASE("HO-Ring takes the paper's fraction of a ring's time on the paper's links") {
  // PaRO §3.3, §4.2: one GPU across nodes has 10-18 GB/s, eight together 56 GB/s. 100 GB in total over 16 ranks take
  // 459 ms in a ring: 13.6 GB/s on the inter-node link. HO-Ring takes 309 ms: 18.9 GB/s inside nodes, its bottleneck.
  const Topology topology = Topology::regular(8, 2);
  const Conditions conditions = rates({0, 18.9e9, unlimited}, {0, 13.6e9, 56e9});
  constexpr std::size_t elements = 100'000'000'000 / 15 / (16 * 7) * (16 * 7);
  CHECK(seconds(gather("ring", topology, elements), topology, conditions) == Approx(0.459).epsilon(0.01));
  CHECK(seconds(gather("ho-ring", topology, elements), topology, conditions) == Approx(0.309).epsilon(0.01));
}

TEST_CASE("if the ranks of a node share its link, node-aware plans come near (p - k)/(p - 1) of a ring's time") {
  for (const auto& [k, n] : {std::pair{2, 2}, {8, 2}, {8, 4}}) {
    const Topology topology = Topology::regular(k, n);
    const int p = k * n;
    const std::size_t elements = 100u * p * (k - 1);
    const Conditions conditions = rates({0, 1e6, 1e7}, {0, 1, 1});
    const double ring = seconds(gather("ring", topology, elements), topology, conditions);
    for (const Plan& plan : {gather("hierarchical", topology, elements), gather("ho-ring", topology, elements)})
      CHECK(seconds(plan, topology, conditions) / ring == Approx(double(p - k) / (p - 1)).epsilon(0.001));
  }
}

TEST_CASE("small gathers take least time with few steps, large ones with both link classes at once") {
  const Topology topology = Topology::regular(4, 2);
  const auto fastest = [&](std::size_t elements, const Links& links) {
    std::map<double, std::string_view> names;
    for (const Algorithm& each : algorithms(Collective::all_gather))
      names.emplace(seconds(each.plan(topology, elements, 1, 0), topology, {.links = links}), each.name);
    return names.begin()->second;
  };
  CHECK(fastest(8, {{2e-6, 6e9, 12e9}, {4e-5, 2.5e7, 2.5e7}}) == "hierarchical");
  CHECK(fastest(80'000'000, {{2e-6, 6e9, unlimited}, {2e-6, 2e9, unlimited}}) == "ho-ring");
}

TEST_CASE("if all nodes do the same, the cost over the last node's ranks equals the cost over all ranks") {
  const Conditions conditions{.links = {{2e-6, 6e9, 12e9}, {2e-5, 1.25e9, 1.25e9}}, .chunks = 2, .depth = 2};
  for (const auto& [inner, outer] : {std::pair{1, 5}, {2, 3}, {3, 4}, {8, 2}, {4, 8}, {6, 1}}) {
    const Topology topology = Topology::regular(inner, outer);
    for (const Collective collective : ranvier::test::all_collectives) {
      for (const Algorithm& each : algorithms(collective)) {
        CAPTURE_ALL(each.name, inner, outer);
        const std::size_t elements = 840u * static_cast<std::size_t>(topology.ranks());
        const Plan whole = each.plan(topology, elements, 2, 1);
        Plan of_node = whole;
        for (int rank = 0; rank < inner * (outer - 1); ++rank)
          of_node.ranks[static_cast<std::size_t>(rank)].clear();
        CHECK(seconds(of_node, topology, conditions) ==
              Approx(seconds(whole, topology, conditions)).epsilon(1e-12));
      }
    }
  }
}
