// Which algorithms the collectives of a run use: as the flags say, or where they say auto, those of the runs before, or
// the one that the cost model (collectives/cost.hpp) finds fastest. Decided once per run, for each kind of team and
// each collective, on the largest unit of the architecture, for gradients on the largest that has some: the choice,
// and with it the order of sums, does not depend on how layers are cut into stages. Pure; any thread; the same on all
// ranks.
#pragma once

#include "actors/states/sharded_unit.hpp"
#include "actors/states/unit_shardings.hpp"
#include "collectives/link_file.hpp"
#include "collectives/plan_choice.hpp"
#include "collectives/shard.hpp"
#include "models/layer.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

/// "auto", or names of collectives/algorithms.hpp.
struct AlgorithmNames {
  std::string all_gather = "auto", reduce_scatter = "auto", all_reduce = "auto";

  friend bool operator==(const AlgorithmNames&, const AlgorithmNames&) = default;
};

/// By TeamKind, what auto has chosen in runs of the same training before this one; no name is "auto".
using KeptAlgorithms = std::array<AlgorithmNames, collectives::team_kinds>;

/// Where nothing was measured: memory that the ranks of a node share, and 10 Gbit/s that they share between nodes.
inline constexpr collectives::Links assumed_links = {
    .intra_node = {.latency_seconds = 2e-6, .bytes_per_second = 6e9, .node_bytes_per_second = 12e9},
    .inter_node = {.latency_seconds = 20e-6, .bytes_per_second = 1.25e9, .node_bytes_per_second = 1.25e9}};

/// By TeamKind.
using PlanChoices = std::array<collectives::PlanChoice, collectives::team_kinds>;

struct ChoiceOptions {
  AlgorithmNames names;
  std::optional<KeptAlgorithms> kept = std::nullopt;  ///< where names say auto; none: as the cost model says
  collectives::Links links = assumed_links;
  LargestUnits largest;
  models::Precision precision;
  /// Whose collectives are wanted: the others are left at the first algorithm. None: all are.
  std::optional<UnitShardings> sharding = std::nullopt;
};

/// For a column whose rank r is on node `node_of[r]`, in groups of `group_size`. Throws ErrorCode::usage for a name
/// that is none.
[[nodiscard]] PlanChoices choose_algorithms(std::span<const int> node_of, int group_size,
                                            const ChoiceOptions& options);

/// Every team of a kind, each once.
[[nodiscard]] std::vector<collectives::Team> teams_of(std::span<const int> node_of, int group_size,
                                                      collectives::TeamKind kind);

/// How long a collective on `elements` takes when all of these teams, which have no rank in common, run it at the
/// same time: they share the links of their nodes. `node_of` by rank of the column.
[[nodiscard]] double seconds_together(std::span<const collectives::Team> teams, std::span<const int> node_of,
                                      const collectives::Algorithm& algorithm, const collectives::PlanChoice& cut,
                                      std::size_t elements, runtime::DType dtype, const collectives::Links& links);

}  // namespace ranvier::actors
