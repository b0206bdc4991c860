#include "collectives/plans/topology.hpp"
#include "tests/test.hpp"

#include <fmt/format.h>

using namespace ranvier::collectives;
using namespace ranvier::tests;

namespace {

struct Layout {
  const char* name;
  std::vector<int> node_of;
};

const std::vector<Layout> layouts = {
    {"one node", std::vector<int>(12, 7)},
    {"three nodes", {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}},
    {"a node each", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
    {"dealt out to two nodes", {5, 3, 5, 3, 5, 3, 5, 3, 5, 3, 5, 3}},
    {"uneven nodes", {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2}},
    {"odd nodes", {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}},
};

}  // namespace

TEST_CASE("the index in a unit is the index in the group, then the one among the replicas") {
  for (const auto& [name, node_of] : layouts)
    for (const int size : {1, 2, 3, 4, 6, 12}) {
      CAPTURE_ALL(name, size);
      const Groups groups(node_of, size);
      REQUIRE(groups.count() == 12 / size);
      std::set<int> pieces;
      for (int rank = 0; rank < 12; ++rank) {
        const Team column = groups.column(), group = groups.group_of(rank), replicas = groups.replicas_of(rank);
        const int piece = column.topology.piece(column.index_of(rank));
        CHECK(piece == group.topology.piece(group.index_of(rank)) * groups.count() +
                           replicas.topology.piece(replicas.index_of(rank)));
        CHECK(group.topology.ranks() == size);
        CHECK(replicas.topology.ranks() == groups.count());
        for (const int other : group.members) CHECK(groups.group_of(other).members == group.members);
        for (const int other : replicas.members) CHECK(groups.replicas_of(other).members == replicas.members);
        for (const Team& team : {column, group, replicas})
          for (int r = 0; r < team.topology.ranks(); ++r) {
            CHECK(team.topology.node_of[r] == node_of[team.members[r]]);
            CHECK(team.topology.rank_of_piece(team.topology.piece(r)) == r);
            CHECK(team.topology.same_node(r, r - r % team.topology.inner));  // a row is on one node
          }
        pieces.insert(piece);
      }
      CHECK(pieces.size() == 12);
    }
}

TEST_CASE("the pieces of a node's ranks are contiguous, and the pieces of a group's shards are as well") {
  // Two nodes of two ranks in each of two groups: (local rank, node within the group, group).
  const std::vector<int> node_of = {0, 0, 1, 1, 2, 2, 3, 3};
  const Groups groups(node_of, 4);
  std::vector<int> pieces;
  for (int rank = 0; rank < 8; ++rank)
    pieces.push_back(groups.column().topology.piece(groups.column().index_of(rank)));
  CHECK(pieces == std::vector{0, 4, 2, 6, 1, 5, 3, 7});
}

TEST_CASE("groups keep to nodes, regardless of how ranks were dealt out") {
  const std::vector<int> node_of = {0, 1, 0, 1, 0, 1, 0, 1};
  const Groups groups(node_of, 4);
  CHECK(groups.group_of(2).members == std::vector{0, 2, 4, 6});
  CHECK(groups.group_of(5).members == std::vector{1, 3, 5, 7});
  CHECK(groups.replicas_of(4).members == std::vector{4, 5});
  CHECK(groups.column().topology.inner == 4);
  CHECK(groups.column().topology.outer == 2);
}

TEST_CASE("groups that share a node are one row of their column") {
  const Groups groups(std::vector{0, 0, 0, 0, 1, 1, 1, 1}, 2);
  CHECK(groups.column().topology.inner == 4);
  CHECK(groups.replicas_of(0).topology.inner == 2);
  CHECK(groups.replicas_of(0).topology.outer == 2);
}

TEST_CASE("the common size of uneven nodes is one that divides all of them") {
  CHECK(common_node_size(std::vector{0, 0, 0, 0, 1, 1}) == 2);
  CHECK(common_node_size(std::vector{0, 1, 0, 1}) == 2);
  CHECK(common_node_size(std::vector{0, 0, 1}) == 1);
  CHECK(common_node_size(std::vector{4}) == 1);
}

TEST_CASE("a group size that does not divide the column is refused") {
  for (const int size : {-1, 0, 4, 12}) {
    const auto error = error_of([&] { Groups(std::vector(6, 0), size); });
    CHECK(error.code() == ranvier::ErrorCode::usage);
    CHECK(says(error, fmt::format("`group_size` {} must divide `g_data` 6; use one of 1, 2, 3, 6", size)));
  }
}
