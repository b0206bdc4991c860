// Arrangement of the ranks of an operation, and the piece of the buffer that each owns. Pure data; any thread.
//
// Ranks form `outer` rows of `inner` ranks; a row shares a node if nodes are uniform. Rank (i, o) owns piece i · outer
// + o. So the ranks at one position of all rows own a contiguous range, and an all-gather across the nodes and then
// inside them needs no reordering (MiCS §3.3). Columns, groups and replicas are such grids, and their pieces nest:
//
//   piece in the column = piece in the group · groups + piece among the replicas
#pragma once

#include <span>
#include <vector>

namespace ranvier::collectives {

struct Topology {
  int inner = 1;             ///< ranks per row
  int outer = 1;             ///< number of rows
  std::vector<int> node_of;  ///< [rank] node number

  /// `outer` nodes of `inner` ranks each.
  [[nodiscard]] static Topology regular(int inner, int outer);

  [[nodiscard]] int ranks() const noexcept { return inner * outer; }
  [[nodiscard]] int rank(int i, int o) const noexcept { return o * inner + i; }
  /// Ranks of row `o`, and ranks at position `i` of all rows.
  [[nodiscard]] std::vector<int> row(int o) const;
  [[nodiscard]] std::vector<int> column(int i) const;
  [[nodiscard]] int piece(int rank) const noexcept { return rank % inner * outer + rank / inner; }
  [[nodiscard]] int rank_of_piece(int piece) const noexcept { return piece % outer * inner + piece / outer; }
  [[nodiscard]] bool same_node(int rank, int other) const { return node_of.at(rank) == node_of.at(other); }
};

/// Ranks of one operation.
struct Team {
  Topology topology;
  std::vector<int> members;  ///< [rank of the topology] rank in the column

  /// Index of `rank` of the column in `members`.
  [[nodiscard]] int index_of(int rank) const;
};

/// Largest number of ranks that divides every node's number of ranks: ranks per node if nodes are uniform.
[[nodiscard]] int common_node_size(std::span<const int> node_of);

/// Throws ErrorCode::usage unless groups of `size` ranks fill a column of `ranks`.
void check_group_size(int size, int ranks);

/// A column cut into groups of `size` ranks, neighbours by node: partition groups in MiCS §3.2, groups in PaRO §3.2.
/// If nodes or groups are uneven, a row has the largest number of ranks that fits all of them.
class Groups {
 public:
  /// `node_of[r]`: node of rank r of the column. Throws ErrorCode::usage unless `size` divides the column.
  Groups(std::span<const int> node_of, int size);

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(column_.members.size()) / size_; }

  [[nodiscard]] Team column() const { return column_; }
  /// The group of `rank`.
  [[nodiscard]] Team group_of(int rank) const;
  /// `rank` and the ranks at its position in the other groups: a replication group.
  [[nodiscard]] Team replicas_of(int rank) const;

 private:
  /// Position of a rank in the unit, most significant first.
  struct Coordinates {
    int local = 0;  ///< among the ranks of the group in its row
    int node = 0;   ///< row within the group
    int slot = 0;   ///< group among those that share its row
    int span = 0;   ///< rows of a group, or of several groups that share a row
  };

  [[nodiscard]] int rank(const Coordinates& place) const;
  [[nodiscard]] Coordinates coordinates(int rank) const;
  /// Ranks from `first` to before `end` in each coordinate, in the order of a team.
  [[nodiscard]] std::vector<int> members(const Coordinates& first, const Coordinates& end) const;
  [[nodiscard]] Team team(int inner, int outer, std::vector<int> members) const;

  int size_;
  int locals_ = 1;
  int nodes_ = 1;
  int slots_ = 1;
  int spans_ = 1;
  std::vector<int> node_of_;
  std::vector<int> by_node_;  ///< ranks, sorted by node
  Team column_;
};

}  // namespace ranvier::collectives
