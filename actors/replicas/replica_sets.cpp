#include "actors/replicas/replica_sets.hpp"

#include "actors/states/sharded_unit.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace ranvier::actors {

using collectives::Range;

std::vector<ReplicaSet> replica_sets(const std::vector<models::UnitSpec>& units,
                                     const std::vector<std::vector<int>>& stages,
                                     const ReplicaSetOptions& options) {
  const collectives::ShardLayout& layout = *options.layout;
  const runtime::Grid grid(options.grid, options.grid.ranks());
  std::vector<ReplicaSet> sets;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const std::size_t elements = units[u].elements(),
                      padded = padded_elements(units[u], layout.ranks(), options.tiers, options.wire);
    for (const StateShape& held :
         state_shapes(units[u].trained, options.sharding, options.precision, options.tiers)) {
      if (held.kind == StateKind::secondary || held.kind == StateKind::gradients) continue;  // short-lived
      const ElementSet stored = stored_elements(held.kind, units[u], elements, options.tiers);
      std::vector<ReplicaSet> pieces(static_cast<std::size_t>(layout.pieces(held.scope)),
                                     ReplicaSet{.unit = units[u].name, .array = held.kind, .dtype = held.dtype});
      for (const int stage : stages[u]) {
        for (int row = 0; row < layout.ranks(); ++row) {
          ReplicaSet& set = pieces[static_cast<std::size_t>(layout.piece(held.scope, row))];
          if (set.ranks.empty()) set.range = layout.range(held.scope, padded, row);
          set.ranks.push_back(grid.rank({stage, row}));
        }
      }
      for (ReplicaSet& set : pieces) {
        set.range.count =
            std::min(set.range.begin + set.range.count, elements) - std::min(set.range.begin, elements);
        if (set.ranks.size() < 2) continue;
        std::ranges::sort(set.ranks);
        for (const Range& range : stored.in(set.range)) {
          sets.push_back(set);
          sets.back().range = range;
        }
      }
    }
  }
  return sets;
}

std::vector<std::size_t> odd_copies(std::span<const std::uint64_t> hashes) {
  std::map<std::uint64_t, std::size_t> count;
  for (const std::uint64_t hash : hashes) ++count[hash];
  if (count.size() < 2) return {};
  const auto most = *std::ranges::max_element(count, {}, [](const auto& one) { return one.second; });
  const auto with_most = std::ranges::count_if(count, [&](const auto& one) { return one.second == most.second; });
  std::vector<std::size_t> odd;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (with_most > 1 || hashes[i] != most.first) odd.push_back(i);
  }
  return odd;
}

std::string describe(const ReplicaMismatch& damage, runtime::GridShape shape) {
  const runtime::Grid grid(shape, shape.ranks());
  std::vector<std::string> names;
  for (const int rank : damage.ranks) {
    const auto [stage, row] = grid.position(rank);
    names.push_back(fmt::format("rank {} (stage {}, row {})", rank, stage, row));
  }
  const std::string what =
      fmt::format("elements {} to {} of the {} of {}", damage.range.begin,
                  damage.range.begin + damage.range.count - 1, to_string(damage.array), damage.unit);
  if (damage.others.empty()) return fmt::format("{} differ in {}", fmt::join(names, " and "), what);
  return fmt::format("{} {} from rank{} {} in {}", fmt::join(names, " and "),
                     names.size() == 1 ? "differs" : "differ", damage.others.size() == 1 ? "" : "s",
                     fmt::join(damage.others, ", "), what);
}

}  // namespace ranvier::actors
