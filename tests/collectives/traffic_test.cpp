#include "collectives/plans/traffic.hpp"

#include "collectives/plans/algorithms.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;

namespace {

// PaRO's Figure 5 in small: N ranks in g groups of M, one node each.
constexpr int N = 64, g = 8, M = N / g;
constexpr std::size_t psi = 64 * 56 * 3;

// The quantities of PaRO's Table 2: inside all groups; across all replicas.
constexpr std::size_t I = psi / M * N * (M - 1), X = psi * (g - 1);

Groups groups() {
  std::vector<int> node_of;
  for (int rank = 0; rank < N; ++rank) node_of.push_back(rank / M);
  return {node_of, M};
}

}  // namespace

TEST_CASE("gathers inside all groups move Table 2's I, those across all replicas its X") {
  const Groups cut = groups();
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter})
    for (const Algorithm& algorithm : algorithms(collective)) {
      std::size_t inside = 0, across = 0;
      for (int group = 0; group < g; ++group) {
        const Team team = cut.group_of(group * M);
        const Traffic traffic = traffic_of(algorithm.plan(team.topology, psi, 1, 0), team.topology);
        CHECK(traffic.inter_node == 0);
        inside += traffic.intra_node;
      }
      for (int place = 0; place < M; ++place) {
        const Team team = cut.replicas_of(place);
        const Traffic traffic = traffic_of(algorithm.plan(team.topology, psi / M, 1, 0), team.topology);
        CHECK(traffic.intra_node == 0);
        across += traffic.inter_node;
      }
      CHECK(inside == I);
      CHECK(across == X);
    }
}

TEST_CASE("chunks together move the volume of the undivided plan") {
  const Topology topology = Topology::regular(3, 2);
  const Algorithm& gather = algorithm(Collective::all_gather, "ho-ring");
  const Traffic whole = traffic_of(gather.plan(topology, 600, 1, 0), topology);
  const Traffic chunks = traffic_of(ranvier::test::plans_of(gather, topology, 600, 7), topology);
  CHECK(chunks.intra_node == whole.intra_node);
  CHECK(chunks.inter_node == whole.inter_node);
  CHECK(chunks.max_inter_of_node == whole.max_inter_of_node);
}

TEST_CASE("the computed volume of an operation equals the volume of its plans, for every algorithm") {
  ranvier::tests::Share share(1, 4);
  const auto equal = [](const Traffic& left, const Traffic& right) {
    return left.intra_node == right.intra_node && left.inter_node == right.inter_node &&
           left.max_intra_of_rank == right.max_intra_of_rank && left.max_inter_of_rank == right.max_inter_of_rank &&
           left.max_inter_of_node == right.max_inter_of_node;
  };
  // Nodes of equal sizes, and nodes that rows do not divide.
  std::vector<Team> teams;
  for (const int ranks : {1, 2, 3, 4, 6, 7, 9, 12, 16})
    for (int node = 1; node <= ranks; ++node) {
      std::vector<int> node_of;
      for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank / node);
      for (int size = 1; size <= ranks; ++size) {
        if (ranks % size != 0) continue;
        const Groups cut(node_of, size);
        teams.insert(teams.end(), {cut.column(), cut.group_of(ranks - 1), cut.replicas_of(0)});
      }
    }
  for (const Team& team : teams) {
    const auto ranks = static_cast<std::size_t>(team.topology.ranks());
    for (const Collective collective : ranvier::test::all_collectives) {
      for (const Algorithm& algorithm : algorithms(collective)) {
        if (!share.takes()) continue;
        CAPTURE_ALL(algorithm.name, team.topology.inner, team.topology.outer);
        const std::string name(algorithm.name);
        const PlanChoice choice{.all_gather = name, .reduce_scatter = name, .all_reduce = name};
        const OperationShape shape{collective, {3 * ranks, 0, 7 * ranks}};
        const auto plans = ranvier::test::plans_of(algorithm, team.topology, 10 * ranks, 3);
        CHECK(equal(traffic_of(team, choice, shape), traffic_of(plans, team.topology)));
      }
    }
  }
}

TEST_CASE("the volume of a thousand ranks is computed without their plan, a hundred times") {
  std::vector<int> node_of;
  for (int rank = 0; rank < 1024; ++rank) node_of.push_back(rank / 8);
  const Team column = Groups(node_of, 8).column();
  for (int times = 0; times < 100; ++times) {
    const Traffic traffic = traffic_of(column, {}, {Collective::all_gather, {1024u * 1000}});
    CHECK(traffic.max_inter_of_node == 1023u * 1000);
  }
}
