// Lists the ranks that hold replicas of the same elements, and finds the replicas that differ. Replicas are results of
// the same sums in the same order, so any different bit is an error. Pure; any thread.
//
//   parameters                 by their scope: N on all rows, I on the same rank of every group, G not replicated
//   master weights, moments    by the optimizer's scope; none for frozen units
//   unit on two stages         replicated on both
#pragma once

#include "actors/states/state_kind.hpp"
#include "actors/states/tier_options.hpp"
#include "actors/states/unit_shardings.hpp"
#include "collectives/plans/shard.hpp"
#include "models/core/architecture.hpp"
#include "runtime/base/grid.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// Replicas of an array's elements.
struct ReplicaSet {
  std::string unit;
  StateKind array = StateKind::parameters;
  runtime::DType dtype = runtime::DType::f32;
  collectives::Range range;  ///< elements of the unit without padding; not empty
  std::vector<int> ranks;    ///< ranks with a replica: two or more, ascending
};

struct ReplicaSetOptions {
  runtime::GridShape grid;
  const collectives::ShardLayout* layout = nullptr;  ///< layout of any rank: all columns are identical
  UnitShardings sharding;
  models::Precision precision;
  TierOptions tiers;
  collectives::WireTypes wire = {};
};
/// Returns sets in the order of `units`. `stages` lists each unit's stages (stages_of_units()).
[[nodiscard]] std::vector<ReplicaSet> replica_sets(const std::vector<models::UnitSpec>& units,
                                                   const std::vector<std::vector<int>>& stages,
                                                   const ReplicaSetOptions& options);

/// Indices of hashes that differ from the most frequent one; all indices if there is a tie. Empty if all are equal.
[[nodiscard]] std::vector<std::size_t> odd_copies(std::span<const std::uint64_t> hashes);

/// Elements whose replicas differ between ranks.
struct ReplicaMismatch {
  std::string unit;
  StateKind array = StateKind::parameters;
  collectives::Range range;  ///< range of the hashed segment that contains the difference
  std::vector<int> ranks;    ///< ranks that differ from the majority; all ranks if there is none
  std::vector<int> others;   ///< ranks of the majority

  friend bool operator==(const ReplicaMismatch&, const ReplicaMismatch&) = default;
};
/// "rank 2 (stage 0, row 2) differs from ranks 0, 1 in elements 0 to 1023 of the m of h.3".
[[nodiscard]] std::string describe(const ReplicaMismatch& damage, runtime::GridShape grid);

}  // namespace ranvier::actors
