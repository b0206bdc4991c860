// Shards of a unit, and the collectives between scopes (PaRO §3.2, MiCS §3.2). Parameters, gradients and optimizer
// states each have a *scope*: the ranks over which they are sharded. Pure data; any thread.
//
//   none    N   every rank holds the complete unit
//   group   I   the ranks of a group hold one shard each; every group has all of them
//   global  G   the ranks of the column hold one shard each, stored inside their group shards (topology.hpp)
//
// N is the *coarsest* scope and G the *finest*. Every operation works on contiguous ranges.
#pragma once

#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/topology.hpp"
#include "collectives/plans/wire_type.hpp"

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
  /// ZeRO++: parameters gathered from the column in a forward pass are kept in the group for the backward pass.
  bool secondary_parameters = false;

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

/// A well-known name for a sharding.
struct NamedSharding {
  std::string_view name;
  Sharding sharding;
};
/// "ddp", "zero1", "zero2", "zero3", "mics", "paro-igg", "paro-iig", "paro-nig", "zero++".
[[nodiscard]] std::span<const NamedSharding> named_shardings();

/// Parses a name, or three letters of N, I, G for parameters, gradients, optimizer states ("IGG", "igg"). Throws
/// ErrorCode::usage that names the flag, the text and the valid values.
[[nodiscard]] Sharding parse_sharding(std::string_view text, std::string_view flag = "`shard`");
/// Name of the sharding if it has one, otherwise the letters.
[[nodiscard]] std::string to_string(const Sharding& sharding);

/// Ranks of an operation.
enum class TeamKind { column, group, replicas };
inline constexpr int team_kinds = 3;
[[nodiscard]] const char* to_string(TeamKind team) noexcept;

/// A collective on a rank's range at scope `whole`, of which it holds a shard at scope `piece`; an all-reduce does
/// not change the scope.
struct Hop {
  Collective collective = Collective::all_gather;
  TeamKind team = TeamKind::column;
  Scope whole = Scope::none;
  Scope piece = Scope::none;

  friend bool operator==(const Hop&, const Hop&) = default;
};

/// All communication of a sharding, in the order in which it happens to a unit. Without operations of a single rank.
struct ShardFlow {
  std::vector<Hop> gather_forward;  ///< parameters, before each access in a forward pass
  std::vector<Hop>
      gather_backward;  ///< parameters, before each access in a backward pass, recomputed forward passes included
  std::vector<Hop> reduce_microbatch;  ///< gradients, after each microbatch (gradients at scope I or G)
  std::vector<Hop> reduce_batch;       ///< gradients, at the accumulation boundary (MiCS §3.4, PaRO §3.4)
  std::vector<Hop> gather_gradient;    ///< reduced gradients, if optimizer states are sharded less than gradients
  std::vector<Hop> refresh;            ///< parameters, after the optimizer's step
  Scope reduced = Scope::none;         ///< scope of the reduced gradients before the step: the finer of G and OS
};

/// Shards of one rank of a column, and its teams.
class ShardLayout {
 public:
  /// `node_of[r]`: node of rank r of the column; `rank`: this one. Throws ErrorCode::usage unless `group_size`
  /// divides the column.
  ShardLayout(std::span<const int> node_of, int group_size, int rank);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(teams_[0].members.size()); }
  [[nodiscard]] int group_size() const noexcept { return static_cast<int>(teams_[1].members.size()); }
  [[nodiscard]] int groups() const noexcept { return static_cast<int>(teams_[2].members.size()); }
  [[nodiscard]] int rank() const noexcept { return rank_; }

  [[nodiscard]] const Team& team(TeamKind kind) const { return teams_[static_cast<std::size_t>(kind)]; }

  /// Number of shards of a unit at a scope, and the shard of `rank` of the column.
  [[nodiscard]] int pieces(Scope scope) const noexcept;
  [[nodiscard]] int piece(Scope scope, int rank) const;
  [[nodiscard]] int piece(Scope scope) const { return piece(scope, rank_); }

  /// Returns whether two ranks hold shards of the same copy of a unit: both are in one group, or the scope is global.
  [[nodiscard]] bool share_copy(Scope scope, int rank, int other) const;

  /// This rank's range of a unit of `elements`, divisible by the ranks of the column.
  [[nodiscard]] Range range(Scope scope, std::size_t elements) const { return range(scope, elements, rank_); }
  [[nodiscard]] Range range(Scope scope, std::size_t elements, int rank) const;

  /// If messages of gradients have blocks, gradients are reduced in groups and then across groups, so that an element
  /// loses precision once per hop, for any number of ranks (ZeRO++ §3.3).
  [[nodiscard]] ShardFlow flow(const Sharding& sharding, const WireTypes& wire = {}) const;

  /// Type of elements in messages of a team, equal for all teams of a kind: they use links between nodes if one does.
  [[nodiscard]] WireType wire_type(TeamKind team, const WireTypes::Links& types) const;

 private:
  [[nodiscard]] std::vector<Hop> scatter_hops(bool by_groups, Scope whole, Scope piece) const;
  [[nodiscard]] std::vector<Hop> gather_hops(bool by_groups, Scope whole, Scope piece) const;

  int rank_;
  std::vector<Team> teams_;        // by TeamKind
  std::vector<int> column_piece_;  // by rank of the column
};

/// Node of each row of a grid, the same for all columns. Rows are neighbours only if they share a node in each column,
/// so a unit tied across stages is sharded identically on both. `node_of[rank]`: ranks column by column.
[[nodiscard]] std::vector<int> common_rows(std::span<const int> node_of, int stages, int rows);

}  // namespace ranvier::collectives
