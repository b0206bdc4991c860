// Sharded units of a stage, and the memory of their states per rank (PaRO Table 1); README.md has the bytes per
// parameter. Pure data; any thread.
//
// Each kind of state is sharded at its own scope (collectives/plans/shard.hpp). Frozen units have parameters only, at a
// separate scope (PaRO §3.2). ZeRO++ keeps a second copy of the parameters in the group. A unit has one gradient per
// tied use.
#pragma once

#include "actors/states/element_set.hpp"
#include "actors/states/matrix_owners.hpp"
#include "actors/states/state_kind.hpp"
#include "actors/states/tier_options.hpp"
#include "actors/states/unit_shardings.hpp"
#include "collectives/plans/shard.hpp"
#include "models/core/architecture.hpp"
#include "offload/tiers.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::actors {

struct ShardedUnit {
  std::size_t elements = 0;               ///< padded (padded_elements())
  int uses = 1;                           ///< layers of the stage that read it
  bool trained = true;                    ///< false: parameters only
  std::vector<UnitMatrix> matrices = {};  ///< with Muon
  ElementSet second_moments = {};         ///< elements with v

  friend bool operator==(const ShardedUnit&, const ShardedUnit&) = default;
};

/// Elements that an array of a unit has, among `elements` with padding. All arrays have all of them, except Muon's v:
/// it has the blocks of 256 elements that contain an element of a parameter that AdamW updates.
[[nodiscard]] ElementSet stored_elements(StateKind kind, const models::UnitSpec& unit, std::size_t elements,
                                         const TierOptions& tiers);

/// `elements`: padded_elements().
[[nodiscard]] ShardedUnit sharded_unit(const models::UnitSpec& unit, std::size_t elements,
                                       const TierOptions& tiers);

/// Units of slices of layers, each once, in order of first use.
[[nodiscard]] std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture,
                                                     const std::vector<models::LayerRange>& slices, int ranks,
                                                     const TierOptions& tiers = {},
                                                     const collectives::WireTypes& wire = {});

/// Elements of a unit in a column of `ranks`, padded so that every finest shard is a multiple of UnitSpec::alignment.
/// If its moments are int8, or its messages have blocks, shards consist of whole blocks.
[[nodiscard]] std::size_t padded_elements(const models::UnitSpec& unit, int ranks, const TierOptions& tiers = {},
                                          const collectives::WireTypes& wire = {});

/// Padded elements of the largest unit.
struct LargestUnits {
  std::size_t all = 0;      ///< maximum over all units
  std::size_t trained = 0;  ///< maximum over trained units
};
[[nodiscard]] LargestUnits largest_units(const models::Architecture& architecture, int ranks,
                                         const TierOptions& tiers = {}, const collectives::WireTypes& wire = {});

/// Returns whether master weights are separate from the layers' parameters, for trained units.
[[nodiscard]] bool separate_master(const models::Precision& precision, const TierOptions& tiers);
/// Element type of a kind of state.
[[nodiscard]] runtime::DType dtype_of(StateKind kind, const models::Precision& precision, const TierOptions& tiers);

/// An array of a unit's states: on a rank, its shard at this scope.
struct StateShape {
  StateKind kind = StateKind::parameters;
  collectives::Scope scope = collectives::Scope::none;
  runtime::DType dtype = runtime::DType::f32;
};
/// All arrays of a trained or frozen unit. Without separate master weights, parameters have the coarser of the scopes
/// of P and OS.
[[nodiscard]] std::vector<StateShape> state_shapes(bool trained, const UnitShardings& shardings,
                                                   const models::Precision& precision, const TierOptions& tiers);

/// Returns whether layers read parameters of trained or frozen units in place: not sharded, on the device.
[[nodiscard]] bool are_in_place(bool trained, const UnitShardings& shardings, int ranks, int group_size,
                                const models::Precision& precision, const TierOptions& tiers);

/// Bytes of a rank's persistent states, on all tiers.
struct StateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t frozen = 0;  ///< bytes of frozen parameters, included in `parameters`

  [[nodiscard]] std::size_t total() const noexcept { return parameters + gradients + optimizer; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

/// Bytes per rank, equal for all `ranks` of a column with groups of `group_size`. Each rank has memory for the largest
/// number of second moments in any rank's shard of a unit.
[[nodiscard]] StateBytes state_bytes(std::span<const ShardedUnit> units, const UnitShardings& shardings, int ranks,
                                     int group_size, const models::Precision& precision,
                                     const TierOptions& tiers = {});

/// Tier of the optimizer states of each of a stage's units. With TierOptions::optimizer_budget, units whose states fit
/// in its rest stay on the device, from the front (DeepSpeed's Twin-Flow keeps a fraction of all elements). The first
/// layers are reduced last and needed first by the next batch, so passes overlap their transfers least, whenever
/// updates start. Equal on all ranks of a column.
[[nodiscard]] std::vector<TierKind> optimizer_tiers(std::span<const ShardedUnit> units,
                                                    const UnitShardings& shardings, int ranks, int group_size,
                                                    const models::Precision& precision, const TierOptions& tiers);

}  // namespace ranvier::actors
