// Chooses the algorithm of each collective and kind of team, once per run: from flags, or for auto from the resumed run
// or the cost model (collectives/plans/cost.hpp). The cost model uses the architecture's largest unit, for gradients
// the largest trained one, so that the order of sums does not depend on the number of stages. Pure; any thread;
// identical on all ranks.
#pragma once

#include "actors/states/sharded_unit.hpp"
#include "actors/states/unit_shardings.hpp"
#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/link_file.hpp"
#include "collectives/plans/shard.hpp"
#include "models/core/layer.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// "auto", or names of collectives/plans/algorithms.hpp.
struct AlgorithmNames {
  std::string all_gather = "auto", reduce_scatter = "auto", all_reduce = "auto";

  friend bool operator==(const AlgorithmNames&, const AlgorithmNames&) = default;
};

/// Choices of auto in the resumed run, by TeamKind; no name is "auto".
using KeptAlgorithms = std::array<AlgorithmNames, collectives::team_kinds>;

/// Assumed links without measurement: shared memory within a node, 10 Gbit/s per node between nodes.
inline constexpr collectives::Links assumed_links = {
    .intra_node = {.latency_seconds = 2e-6, .bytes_per_second = 6e9, .node_bytes_per_second = 12e9},
    .inter_node = {.latency_seconds = 20e-6, .bytes_per_second = 1.25e9, .node_bytes_per_second = 1.25e9}};

/// By TeamKind.
using PlanChoices = std::array<collectives::PlanChoice, collectives::team_kinds>;

struct ChoiceOptions {
  AlgorithmNames names;
  std::optional<KeptAlgorithms> kept = std::nullopt;  ///< used for auto; none: cost model
  collectives::Links links = assumed_links;
  LargestUnits largest;
  models::Precision precision;
  /// Collectives to choose; others keep the first algorithm. None: all.
  std::optional<UnitShardings> sharding = std::nullopt;
  collectives::WireTypes wire = {};  ///< types in messages
};

/// Chooses for a column whose rank r is on node `node_of[r]`, in groups of `group_size`. Throws ErrorCode::usage for an
/// unknown name.
[[nodiscard]] PlanChoices choose_algorithms(std::span<const int> node_of, int group_size,
                                            const ChoiceOptions& options);

/// All teams of a kind, each once.
[[nodiscard]] std::vector<collectives::Team> teams_of(std::span<const int> node_of, int group_size,
                                                      collectives::TeamKind kind);

/// Time of a collective on `elements` if all teams, which are disjoint, run it at the same time and share the links of
/// their nodes. `node_of`: by rank of the column.
[[nodiscard]] double seconds_together(std::span<const collectives::Team> teams, std::span<const int> node_of,
                                      const collectives::Algorithm& algorithm, const collectives::PlanChoice& cut,
                                      std::size_t elements, runtime::DType dtype, const collectives::Links& links);

}  // namespace ranvier::actors
