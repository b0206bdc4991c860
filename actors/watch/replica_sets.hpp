// Which ranks of a job hold the same elements of the same state, and which of their copies differ from the rest: copies
// are made by the same sums in the same order, so a bit that differs is damage. Pure; any thread.
//
//   layers' parameters of a unit   all rows, groups' members of the same number, or nobody, as their scope says
//   master weights, moments        likewise by the optimizer's scope; not of frozen units
//   a unit of two stages           all of that on both of them
#pragma once

#include "actors/states/state_kind.hpp"
#include "actors/states/unit_shardings.hpp"
#include "collectives/shard.hpp"
#include "models/architecture.hpp"
#include "runtime/grid.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// Copies of an array's elements.
struct ReplicaSet {
  std::string unit;
  StateKind array = StateKind::parameters;
  collectives::Range range;  ///< elements of the unit, without padding; some
  std::vector<int> ranks;    ///< that hold them: two or more, ascending
};

struct CopySetOptions {
  runtime::GridShape grid;
  const collectives::ShardLayout* layout = nullptr;  ///< of any rank: all columns are alike
  UnitShardings sharding;
  bool separate_master = false;  ///< otherwise layers' parameters are the master weights
};
/// In the order of the architecture's units; `stages` are those of each of them, as stages_of_units() has them.
[[nodiscard]] std::vector<ReplicaSet> replica_sets(const std::vector<models::UnitSpec>& units,
                                                   const std::vector<std::vector<int>>& stages,
                                                   const CopySetOptions& options);

/// The copies that differ from what most have; all, where there is no such value. Empty: all are equal.
[[nodiscard]] std::vector<std::size_t> odd_copies(std::span<const std::uint64_t> hashes);

/// Elements of a state of which some rank has another copy than others.
struct ReplicaMismatch {
  std::string unit;
  StateKind array = StateKind::parameters;
  collectives::Range range;  ///< as close as pieces of a check tell
  std::vector<int> ranks;    ///< whose copies differ from what most have; where there is no such value, all
  std::vector<int> others;   ///< whose do not

  friend bool operator==(const ReplicaMismatch&, const ReplicaMismatch&) = default;
};
/// "rank 2 (stage 0, row 2) has other elements 0 to 1023 of the m of h.3 than ranks 0, 1".
[[nodiscard]] std::string describe(const ReplicaMismatch& damage, runtime::GridShape grid);

}  // namespace ranvier::actors
