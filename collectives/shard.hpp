// Which part of a unit a rank holds, and the collectives that take it from one part to another (PaRO §3.2, MiCS §3.2,
// ZeRO-Infinity §6.1). One mechanism for all: a *scope* for each of parameters, gradients and optimizer states says
// how far the ranks of a column share it out; everything that is sent follows from the three. Pure data; any thread.
//
//   none    N   every rank holds the whole unit
//   group   I   the ranks of a group hold a piece each, every group has all of them
//   global  G   the ranks of the column hold a piece each
//
// A global piece lies inside its rank's group piece (topology.hpp), so each operation works on contiguous ranges, and
// N ⊃ I ⊃ G: of two scopes the later one is the *finer* one.
#pragma once

#include "collectives/algorithms.hpp"
#include "collectives/topology.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::collectives {

enum class Scope { none, group, global };
[[nodiscard]] char letter(Scope scope) noexcept;  ///< 'N', 'I', 'G'

struct Sharding {
  Scope parameters = Scope::none;
  Scope gradients = Scope::none;
  Scope optimizer = Scope::none;
  /// ZeRO++: what a forward pass gathers from the whole column is kept in the group for the backward pass.
  bool secondary_parameters = false;

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

/// A name that people know and what it stands for.
struct NamedSharding {
  std::string_view name;
  Sharding sharding;
};
/// "ddp", "zero1", "zero2", "zero3", "mics", "paro-igg", "paro-iig", "paro-nig", "zero++".
[[nodiscard]] std::span<const NamedSharding> named_shardings();

/// A name, or three letters of N, I, G for parameters, gradients, optimizer states ("IGG", "igg"). Throws
/// ErrorCode::usage that names the flag, the text and what it takes.
[[nodiscard]] Sharding parse_sharding(std::string_view text, std::string_view flag = "--shard");
/// The name where there is one, otherwise the letters.
[[nodiscard]] std::string to_string(const Sharding& sharding);

/// The ranks of an operation.
enum class TeamKind { column, group, replicas };
inline constexpr int team_kinds = 3;
[[nodiscard]] const char* to_string(TeamKind team) noexcept;

/// One collective on the range that a rank has at scope `whole`, which it holds a piece of at scope `piece`; an
/// all-reduce leaves it at the scope where it is.
struct Hop {
  Collective collective = Collective::all_gather;
  TeamKind team = TeamKind::column;
  Scope whole = Scope::none;
  Scope piece = Scope::none;

  friend bool operator==(const Hop&, const Hop&) = default;
};

/// Everything that a sharding sends, in the order in which it happens to a unit. Operations of one rank are left out.
struct ShardFlow {
  std::vector<Hop> gather_forward;     ///< parameters, before each use in a forward pass
  std::vector<Hop> gather_backward;    ///< and in a backward pass, recomputed forward passes included
  std::vector<Hop> reduce_microbatch;  ///< gradients, after each microbatch (gradients at scope I or G)
  std::vector<Hop> reduce_batch;       ///< gradients, at the accumulation boundary (MiCS §3.4, PaRO §3.4)
  std::vector<Hop> gather_gradient;    ///< reduced gradients, where optimizer states are shared out less than they
  std::vector<Hop> refresh;            ///< parameters, after the optimizer's step
  Scope reduced = Scope::none;         ///< where gradients are complete before the step: the finer of G and OS
};

/// The parts of one rank of a column, and its teams.
class ShardLayout {
 public:
  /// `node_of[r]` is the node of rank r of the column, `rank` this one. Throws ErrorCode::usage unless the column
  /// divides by `group_size`.
  ShardLayout(std::span<const int> node_of, int group_size, int rank);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(teams_[0].members.size()); }
  [[nodiscard]] int group_size() const noexcept { return static_cast<int>(teams_[1].members.size()); }
  [[nodiscard]] int groups() const noexcept { return static_cast<int>(teams_[2].members.size()); }
  [[nodiscard]] int rank() const noexcept { return rank_; }

  [[nodiscard]] const Team& team(TeamKind kind) const { return teams_[static_cast<std::size_t>(kind)]; }

  /// Into how many pieces a scope cuts a unit, and which of them is that of `rank` of the column.
  [[nodiscard]] int pieces(Scope scope) const noexcept;
  [[nodiscard]] int piece(Scope scope, int rank) const;
  [[nodiscard]] int piece(Scope scope) const { return piece(scope, rank_); }

  /// This rank's part of a unit of `elements`, which divide by the ranks of the column.
  [[nodiscard]] Range range(Scope scope, std::size_t elements) const { return range(scope, elements, rank_); }
  [[nodiscard]] Range range(Scope scope, std::size_t elements, int rank) const;

  [[nodiscard]] ShardFlow flow(const Sharding& sharding) const;

 private:
  [[nodiscard]] std::vector<Hop> scatter_hops(bool by_groups, Scope whole, Scope piece) const;
  [[nodiscard]] std::vector<Hop> gather_hops(bool by_groups, Scope whole, Scope piece) const;

  int rank_;
  std::vector<Team> teams_;        // by TeamKind
  std::vector<int> column_piece_;  // by rank of the column
  std::vector<int> group_piece_;   // likewise
};

/// The node of every row of a grid's columns such that all columns are laid out alike: rows count as neighbours only
/// if they share a node in each column (a unit tied across stages is shared out alike on both). `node_of[rank]`, ranks
/// column by column.
[[nodiscard]] std::vector<int> common_rows(std::span<const int> node_of, int stages, int rows);

}  // namespace ranvier::collectives
