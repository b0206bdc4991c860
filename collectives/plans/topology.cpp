#include "collectives/plans/topology.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/base/error.hpp"

namespace ranvier::collectives {

namespace {

/// Ranks grouped by node, nodes in order of their first rank, ranks ascending.
std::vector<int> sorted_by_node(std::span<const int> node_of) {
  std::map<int, std::size_t> first;
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) first.emplace(node_of[rank], rank);
  std::vector<int> ranks(node_of.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int left, int right) { return first.at(node_of[left]) < first.at(node_of[right]); });
  return ranks;
}

}  // namespace

Topology Topology::regular(int inner, int outer) {
  Topology topology{inner, outer, {}};
  for (int rank = 0; rank < inner * outer; ++rank) topology.node_of.push_back(rank / inner);
  return topology;
}

std::vector<int> Topology::row(int o) const {
  std::vector<int> ranks;
  for (int i = 0; i < inner; ++i) ranks.push_back(rank(i, o));
  return ranks;
}

std::vector<int> Topology::column(int i) const {
  std::vector<int> ranks;
  for (int o = 0; o < outer; ++o) ranks.push_back(rank(i, o));
  return ranks;
}

int Team::index_of(int rank) const {
  const auto found = std::find(members.begin(), members.end(), rank);
  expect(found != members.end(), "rank {} of the column is not part of this operation", rank);
  return static_cast<int>(found - members.begin());
}

int common_node_size(std::span<const int> node_of) {
  std::map<int, int> sizes;
  for (const int node : node_of) ++sizes[node];
  int size = 0;
  for (const auto& [node, ranks] : sizes) size = std::gcd(size, ranks);
  return size;
}

void check_group_size(int size, int ranks) {
  if (size > 0 && ranks % size == 0) return;
  std::vector<int> divisors;
  for (int n = 1; n <= ranks; ++n)
    if (ranks % n == 0) divisors.push_back(n);
  fail(ErrorCode::usage, "`group_size` {} must divide `g_data` {}; use one of {}", size, ranks,
       fmt::join(divisors, ", "));
}

Groups::Groups(std::span<const int> node_of, int size)
    : size_(size), node_of_(node_of.begin(), node_of.end()), by_node_(sorted_by_node(node_of)) {
  const auto ranks = static_cast<int>(node_of.size());
  expect(ranks > 0, "a column has no rank");
  check_group_size(size, ranks);
  const int row = common_node_size(node_of);
  if (row % size == 0) {
    locals_ = size;
    slots_ = row / size;
    spans_ = ranks / row;
  } else {
    locals_ = std::gcd(row, size);
    nodes_ = size / locals_;
    spans_ = ranks / size;
  }
  column_ = team(locals_ * slots_, nodes_ * spans_, members({}, {locals_, nodes_, slots_, spans_}));
}

Team Groups::group_of(int rank) const {
  const auto [local, node, slot, span] = coordinates(rank);
  return team(locals_, nodes_, members({0, 0, slot, span}, {locals_, nodes_, slot + 1, span + 1}));
}

Team Groups::replicas_of(int rank) const {
  const auto [local, node, slot, span] = coordinates(rank);
  return team(slots_, spans_, members({local, node, 0, 0}, {local + 1, node + 1, slots_, spans_}));
}

std::vector<int> Groups::members(const Coordinates& first, const Coordinates& end) const {
  std::vector<int> members;
  for (int node = first.node; node < end.node; ++node) {
    for (int span = first.span; span < end.span; ++span) {
      for (int local = first.local; local < end.local; ++local) {
        for (int slot = first.slot; slot < end.slot; ++slot) members.push_back(rank({local, node, slot, span}));
      }
    }
  }
  return members;
}

int Groups::rank(const Coordinates& place) const {
  return by_node_[((place.span * nodes_ + place.node) * slots_ + place.slot) * locals_ + place.local];
}

Groups::Coordinates Groups::coordinates(int rank) const {
  const auto found = std::find(by_node_.begin(), by_node_.end(), rank);
  expect(found != by_node_.end(), "rank is out of range: {} in a column of {}", rank, by_node_.size());
  const auto index = static_cast<int>(found - by_node_.begin());
  return {.local = index % locals_,
          .node = index / (locals_ * slots_) % nodes_,
          .slot = index / locals_ % slots_,
          .span = index / (locals_ * slots_ * nodes_)};
}

Team Groups::team(int inner, int outer, std::vector<int> members) const {
  Team team{{inner, outer, {}}, std::move(members)};
  for (const int member : team.members) team.topology.node_of.push_back(node_of_[member]);
  return team;
}

}  // namespace ranvier::collectives
