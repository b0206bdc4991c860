// The units of a stage as the ranks of a column share them out, and what each rank then holds of them. Pure data;
// any thread.
//
// Bytes of an element, each at the scope of its state (collectives/shard.hpp); PaRO's Table 1 has them for 2-byte
// parameters and gradients, with K bytes of optimizer states:
//
//   precision        P   G   OS   K
//   fp32             4   4   8    the one copy of parameters lies at the coarser of the scopes of P and OS …
//   … P off the device  4  12    … and is master copy too unless layers' parameters live elsewhere
//   bf16, fp16       2   4   12   fp32 master copy and two moments
//   … half gradients 2   2   12
//
// What is frozen has P alone, at a scope of its own: of Ψ parameters with Ψ′ trained ones a rank holds P of Ψ − Ψ′ at
// one scope, and P, G and OS of Ψ′ at others (PaRO §3.2). ZeRO++ keeps a second copy of P in the group. A unit has a
// gradient for each of its uses, added up once per batch.
#pragma once

#include "actors/states/unit_shardings.hpp"
#include "collectives/shard.hpp"
#include "offload/tiers.hpp"
#include "models/architecture.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::actors {

struct ShardedUnit {
  std::size_t elements = 0;  ///< padded: every rank's piece of the column is a multiple of UnitSpec::alignment
  int uses = 1;              ///< layers of the stage that read it
  bool trained = true;       ///< otherwise it has parameters only

  friend bool operator==(const ShardedUnit&, const ShardedUnit&) = default;
};

/// Those of a slice of layers, each once, in the order of their first use.
[[nodiscard]] std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture,
                                                     const std::vector<models::LayerRange>& slices, int ranks);
[[nodiscard]] std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture,
                                                     models::LayerRange layers, int ranks);

/// Elements that a unit is stored with in a column of `ranks`: its own, and zeros behind them.
[[nodiscard]] std::size_t padded_elements(const models::UnitSpec& unit, int ranks);

/// Padded elements of the largest unit.
struct LargestUnits {
  std::size_t all = 0;      ///< of all units
  std::size_t trained = 0;  ///< of those that are trained, whose gradients are reduced
};
[[nodiscard]] LargestUnits largest_units(const models::Architecture& architecture, int ranks);

/// Whether the optimizer's weights are a copy of their own, beside the parameters that layers read, which live in
/// `parameters`; those that are trained.
[[nodiscard]] bool separate_master(const models::Precision& precision, offload::TierKind parameters);
/// What a rank holds of parameters: in one copy with the optimizer's, the coarser of their scopes.
[[nodiscard]] collectives::Scope held_parameters(const collectives::Sharding& sharding, bool separate_master);

/// Whether layers read parameters of trained, or frozen, units where they lie: whole, on the device. `parameters` is
/// where these live.
[[nodiscard]] bool are_in_place(bool trained, const UnitShardings& shardings, int ranks, int group_size,
                                const models::Precision& precision,
                                offload::TierKind parameters = offload::TierKind::device);

/// What one rank holds from batch to batch, wherever that is.
struct StateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t frozen = 0;  ///< of the parameters

  [[nodiscard]] std::size_t total() const noexcept { return parameters + gradients + optimizer; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

/// The same on each of the `ranks` of a column in groups of `group_size`. `parameters` is where trained ones live.
[[nodiscard]] StateBytes state_bytes(std::span<const ShardedUnit> units, const UnitShardings& shardings, int ranks,
                                     int group_size, const models::Precision& precision,
                                     offload::TierKind parameters = offload::TierKind::device);

}  // namespace ranvier::actors
