// Data-parallel traffic of a batch by class of link: PaRO's Table 2 for any sharding, algorithm, groups and uneven
// nodes. Pure data; any thread. Includes gathers of parameters and reductions of gradients by all ranks of a column,
// with padding. Excludes messages between stages, agreements and validation. A run's first batch is an exception:
// frozen units with a second copy (ZeRO++) are gathered from the column once; all other batches gather inside groups.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "actors/schedule/buffer_schedule.hpp"
#include "actors/states/algorithm_choice.hpp"
#include "actors/states/sharded_unit.hpp"
#include "runtime/kernels/block_codec.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace ranvier::actors {

/// Number of gathers and reductions of a unit per stage and batch.
struct UnitTraffic {
  std::size_t elements = 0;
  std::uint64_t forward_gathers = 0;      ///< if parameters are sharded
  std::uint64_t backward_gathers = 0;     ///< if parameters are sharded
  std::uint64_t reductions = 0;           ///< reductions per microbatch, if gradients are sharded
  bool trained = true;                    ///< false: no reductions
  std::vector<UnitMatrix> matrices = {};  ///< with Muon

  friend bool operator==(const UnitTraffic&, const UnitTraffic&) = default;
};

/// Counts as in the papers: each layer gathers its units for every pass of every microbatch.
[[nodiscard]] std::vector<UnitTraffic> moves_of(std::span<const ShardedUnit> units, std::uint64_t micro_steps);

/// Counts as a run does: with buffer reuse, a unit that is still in one of the `places` is not gathered again. `plan`:
/// plan of `stage`, or of one with equal slices; `units`: its units. Exact for schedules with a fixed order.
/// Message-driven ones count as 1F1B, or as ZB-H1 with deferred weight gradients and one slice.
[[nodiscard]] std::vector<UnitTraffic> replayed_moves(const RankPlan& plan, int stage,
                                                      std::span<const ShardedUnit> units,
                                                      const BufferClasses& places);

/// Traffic of one class of links.
struct SentVolume {
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;

  SentVolume& operator+=(const SentVolume& other) noexcept;
  friend bool operator==(const SentVolume&, const SentVolume&) = default;
};

struct PhaseVolume {
  SentVolume intra_node;
  SentVolume inter_node;
  double seconds = 0;  ///< time if operations run one after the other, without other traffic

  /// Adds the traffic of `other`, `times` times.
  void add(const PhaseVolume& other, std::uint64_t times = 1) noexcept;
};

/// Traffic of a batch.
struct Volume {
  PhaseVolume forward;   ///< passes of all microbatches
  PhaseVolume backward;  ///< backward passes, with reductions per microbatch
  PhaseVolume update;    ///< reductions at the batch's end, refreshed parameters and `matrices`
  PhaseVolume matrices;  ///< messages of Muon

  [[nodiscard]] PhaseVolume total() const noexcept;
};

struct VolumeOptions {
  std::vector<int> node_of;      ///< real node by rank of the column
  std::vector<int> node_of_row;  ///< node in the layout (collectives::common_rows); empty: the same
  int group_size = 1;
  PlanChoices algorithms;
  collectives::Links links = assumed_links;
  models::Precision precision;
  TierOptions tiers;
  collectives::WireTypes wire = {};  ///< types in messages
  /// Parameters are pulled from their owners instead of gathered by collectives (message-driven pipelines).
  bool pulls = false;
};

/// Computes volumes of a column; caches results, since units repeat.
class VolumeCounter {
 public:
  explicit VolumeCounter(VolumeOptions options);

  /// Frozen units count with their gathers only, as in every batch but the first.
  [[nodiscard]] Volume count(std::span<const UnitTraffic> units, const UnitShardings& shardings);

 private:
  /// No collective: pulls.
  using Key = std::tuple<std::optional<collectives::Collective>, collectives::TeamKind, std::size_t, runtime::DType,
                         std::optional<runtime::BlockCode>>;

  /// Blocks of messages, by TeamKind; none: messages have the type of the data.
  using Codes = std::array<std::optional<runtime::BlockCode>, collectives::team_kinds>;

  [[nodiscard]] Codes codes_of(const collectives::WireTypes::Links& links) const;
  [[nodiscard]] PhaseVolume of(std::span<const collectives::Hop> hops, std::size_t unit_elements,
                               runtime::DType dtype, const Codes& codes);
  /// Traffic of all teams of a kind. `shape`: one part.
  [[nodiscard]] PhaseVolume of(collectives::TeamKind kind, const collectives::OperationShape& shape) const;
  /// Exchange of the unit's matrices, whose states have that scope.
  [[nodiscard]] PhaseVolume exchanged(const UnitTraffic& unit, collectives::Scope scope);
  [[nodiscard]] PhaseVolume of(const collectives::Plan& plan, runtime::DType dtype) const;
  [[nodiscard]] PhaseVolume pulled(std::span<const collectives::Hop> hops, std::size_t unit_elements,
                                   runtime::DType dtype);

  VolumeOptions options_;
  collectives::ShardLayout layout_;
  Codes gather_codes_, reduce_codes_;
  std::vector<std::vector<collectives::Team>> teams_;  // by TeamKind, with real nodes
  std::map<Key, PhaseVolume> known_;
};

}  // namespace ranvier::actors
