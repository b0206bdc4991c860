#include "collectives/plans/shard.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

namespace ranvier::collectives {

namespace {

constexpr Scope N = Scope::none, I = Scope::group, G = Scope::global;

constexpr NamedSharding names[] = {{"ddp", {N, N, N}},      {"zero1", {N, N, G}},    {"zero2", {N, G, G}},
                                   {"zero3", {G, G, G}},    {"mics", {I, I, I}},     {"paro-igg", {I, G, G}},
                                   {"paro-iig", {I, I, G}}, {"paro-nig", {N, I, G}}, {"zero++", {G, G, G, true}}};

std::optional<Scope> scope_of(char letter) {
  const auto place = std::string_view("NnIiGg").find(letter);
  return place == std::string_view::npos ? std::nullopt : std::optional(static_cast<Scope>(place / 2));
}

}  // namespace

char letter(Scope scope) noexcept { return "NIG"[static_cast<int>(scope)]; }

std::span<const NamedSharding> named_shardings() { return names; }

Sharding parse_sharding(std::string_view text, std::string_view flag) {
  std::vector<std::string_view> known;
  for (const NamedSharding& named : names) {
    if (named.name == text) return named.sharding;
    known.push_back(named.name);
  }
  if (text.size() == 3) {
    const auto parameters = scope_of(text[0]), gradients = scope_of(text[1]), optimizer = scope_of(text[2]);
    if (parameters && gradients && optimizer) return {*parameters, *gradients, *optimizer};
  }
  fail(ErrorCode::usage,
       "{} is invalid: {}; use {}, or three letters of N (not sharded), I (in a group), G (global) for parameters, "
       "gradients and "
       "optimizer states, such as IGG",
       flag, text, fmt::join(known, ", "));
}

std::string to_string(const Sharding& sharding) {
  for (const NamedSharding& named : names) {
    if (named.sharding == sharding) return std::string(named.name);
  }
  return {letter(sharding.parameters), letter(sharding.gradients), letter(sharding.optimizer)};
}

const char* to_string(TeamKind team) noexcept {
  return runtime::enum_name<TeamKind::replicas>(team, {"column", "group", "replicas"});
}

ShardLayout::ShardLayout(std::span<const int> node_of, int group_size, int rank) : rank_(rank) {
  const Groups groups(node_of, group_size);
  teams_ = {groups.column(), groups.group_of(rank), groups.replicas_of(rank)};
  for (int r = 0; r < ranks(); ++r) column_piece_.push_back(teams_[0].topology.piece(teams_[0].index_of(r)));
}

int ShardLayout::pieces(Scope scope) const noexcept { return scope == N ? 1 : scope == I ? group_size() : ranks(); }

int ShardLayout::piece(Scope scope, int rank) const {
  return scope == N ? 0 : column_piece_.at(static_cast<std::size_t>(rank)) / (scope == I ? groups() : 1);
}

bool ShardLayout::share_copy(Scope scope, int rank, int other) const {
  if (scope != I) return scope == G || rank == other;
  // A piece's number among its replicas is the number of its group.
  return piece(G, rank) % groups() == piece(G, other) % groups();
}

Range ShardLayout::range(Scope scope, std::size_t elements, int rank) const {
  const auto count = elements / static_cast<std::size_t>(pieces(scope));
  return {static_cast<std::size_t>(piece(scope, rank)) * count, count};
}

std::vector<Hop> ShardLayout::scatter_hops(bool by_groups, Scope whole, Scope piece) const {
  if (whole == piece) return {};
  constexpr auto scatter = Collective::reduce_scatter;
  std::vector<Hop> hops;
  if (whole == N && piece == G && !by_groups) {
    if (ranks() > 1) hops.push_back({scatter, TeamKind::column, N, G});
    return hops;
  }
  if (whole == N && group_size() > 1) hops.push_back({scatter, TeamKind::group, N, I});
  if (piece == G && groups() > 1) hops.push_back({scatter, TeamKind::replicas, I, G});
  return hops;
}

std::vector<Hop> ShardLayout::gather_hops(bool by_groups, Scope whole, Scope piece) const {
  std::vector<Hop> hops = scatter_hops(by_groups, whole, piece);
  std::reverse(hops.begin(), hops.end());
  for (Hop& hop : hops) hop.collective = Collective::all_gather;
  return hops;
}

ShardFlow ShardLayout::flow(const Sharding& sharding, const WireTypes& wire) const {
  const auto [P, g, o, secondary] = sharding;
  const bool by_groups = P == I || g == I || o == I;
  const bool sums_by_groups = by_groups || !wire.reduce.same();
  ShardFlow flow;
  flow.gather_forward = gather_hops(by_groups, N, P);
  flow.gather_backward = secondary ? gather_hops(true, N, I) : flow.gather_forward;
  flow.reduce_microbatch = scatter_hops(sums_by_groups, N, g);
  flow.reduced = std::max(g, o);
  // Gradients accumulated at scope g are sums over the ranks of one set of g's pieces.
  if (g == N && o == N && !wire.reduce.same()) {
    flow.reduce_batch = scatter_hops(true, N, I);
    if (groups() > 1) flow.reduce_batch.push_back({Collective::all_reduce, TeamKind::replicas, I, I});
    for (const Hop& hop : gather_hops(true, N, I)) flow.reduce_batch.push_back(hop);
  } else if (g == N && o == N) {
    if (ranks() > 1) flow.reduce_batch.push_back({Collective::all_reduce, TeamKind::column, N, N});
  } else if (g != G) {
    flow.reduce_batch = scatter_hops(sums_by_groups, g, flow.reduced);
    if (flow.reduced == I && groups() > 1) {
      flow.reduce_batch.push_back({Collective::all_reduce, TeamKind::replicas, I, I});
    }
  }
  if (g > o) flow.gather_gradient = gather_hops(sums_by_groups, o, g);
  if (o > P) flow.refresh = gather_hops(by_groups, P, o);
  return flow;
}

WireType ShardLayout::wire_type(TeamKind kind, const WireTypes::Links& types) const {
  if (types.intra_node == types.inter_node) return types.intra_node;
  const Team& column = team(TeamKind::column);
  std::vector<int> node_of(column.members.size());
  for (std::size_t i = 0; i < node_of.size(); ++i)
    node_of[static_cast<std::size_t>(column.members[i])] = column.topology.node_of[i];
  const Groups groups(node_of, group_size());
  for (int rank = 0; rank < ranks(); ++rank) {
    const Team each = kind == TeamKind::column  ? column
                      : kind == TeamKind::group ? groups.group_of(rank)
                                                : groups.replicas_of(rank);
    const std::vector<int>& nodes = each.topology.node_of;
    if (std::ranges::count(nodes, nodes.front()) != std::ssize(nodes)) return types.inter_node;
    if (kind == TeamKind::column) break;
  }
  return types.intra_node;
}

std::vector<int> common_rows(std::span<const int> node_of, int stages, int rows) {
  std::map<std::vector<int>, int> known;
  std::vector<int> common;
  for (int row = 0; row < rows; ++row) {
    std::vector<int> nodes;
    for (int stage = 0; stage < stages; ++stage)
      nodes.push_back(node_of[static_cast<std::size_t>(stage * rows + row)]);
    common.push_back(known.emplace(nodes, static_cast<int>(known.size())).first->second);
  }
  return common;
}

}  // namespace ranvier::collectives
