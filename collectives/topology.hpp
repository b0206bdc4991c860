// Where the ranks of an operation stand, and which piece of the buffer each of them owns. Pure data; any thread.
//
// The ranks of a plan stand in `outer` rows of `inner` ranks, a row after the other. Ranks of a row share a node
// wherever nodes are alike. The piece of the rank at (i, o) is i · outer + o: inner index first. So what one rank
// of each row owns together is contiguous, and an all-gather can go across the nodes and then inside them (MiCS
// §3.3) without putting anything in order. A column of ranks that is cut into groups is such a grid, as is each
// group, as are the ranks with one place in all groups; and their pieces nest:
//
//   place in the unit = (local rank, node within the group, group), most significant first
//   piece in the column = piece in the group · groups + piece among the replicas
#pragma once

#include <span>
#include <vector>

namespace ranvier::collectives {

struct Topology {
  int inner = 1;             ///< ranks of a row
  int outer = 1;             ///< rows
  std::vector<int> node_of;  ///< [rank] a number for the node that it is on, equal for equal nodes

  /// `outer` nodes of `inner` ranks each.
  [[nodiscard]] static Topology regular(int inner, int outer);

  [[nodiscard]] int ranks() const noexcept { return inner * outer; }
  [[nodiscard]] int rank(int i, int o) const noexcept { return o * inner + i; }
  [[nodiscard]] int piece(int rank) const noexcept { return rank % inner * outer + rank / inner; }
  [[nodiscard]] int rank_of_piece(int piece) const noexcept { return piece % outer * inner + piece / outer; }
  [[nodiscard]] bool same_node(int rank, int other) const { return node_of.at(rank) == node_of.at(other); }
};

/// The ranks of one operation.
struct Team {
  Topology topology;
  std::vector<int> members;  ///< [rank of the topology] the rank in the column

  /// The index of `rank` of the column in `members`.
  [[nodiscard]] int index_of(int rank) const;
};

/// The most ranks that every node has a multiple of: ranks per node where nodes are alike. `node_of` by rank.
[[nodiscard]] int common_node_size(std::span<const int> node_of);

/// A column cut into groups of `size` ranks, neighbours by node; partition groups in MiCS §3.2, groups in PaRO
/// §3.2. Where nodes or groups are uneven, a row has the most ranks that fit all of them, one if need be.
class Groups {
 public:
  /// `node_of[r]` is the node of rank r of the column. Throws ErrorCode::usage unless the column divides by `size`.
  Groups(std::span<const int> node_of, int size);

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(column_.members.size()) / size_; }

  [[nodiscard]] Team column() const { return column_; }
  /// The group of `rank`.
  [[nodiscard]] Team group_of(int rank) const;
  /// The ranks that have the place of `rank` in the other groups, and `rank`: a replication group.
  [[nodiscard]] Team replicas_of(int rank) const;

 private:
  /// Least significant last: the place of a rank in the unit.
  struct Coordinates {
    int local = 0;  ///< among the ranks of the group that share its row
    int node = 0;   ///< row within the group
    int slot = 0;   ///< group among those that share its row
    int span = 0;   ///< the rows of a group, or of several that share a row
  };

  [[nodiscard]] int rank(const Coordinates& place) const;
  [[nodiscard]] Coordinates coordinates(int rank) const;
  [[nodiscard]] Team team(int inner, int outer, std::vector<int> members) const;

  int size_;
  int locals_ = 1;
  int nodes_ = 1;
  int slots_ = 1;
  int spans_ = 1;
  std::vector<int> node_of_;
  std::vector<int> by_node_;  ///< ranks, sorted so that those of a node are neighbours
  Team column_;
};

}  // namespace ranvier::collectives
