// Sharded units of a stage, and the memory of their states per rank. Pure data; any thread.
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
  std::size_t elements = 0;  ///< padded, so that every finest shard is a multiple of UnitSpec::alignment
  int uses = 1;              ///< layers of the stage that read it
  bool trained = true;       ///< false: parameters only

  friend bool operator==(const ShardedUnit&, const ShardedUnit&) = default;
};

/// Units of slices of layers, each once, in order of first use.
[[nodiscard]] std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture,
                                                     const std::vector<models::LayerRange>& slices, int ranks);
[[nodiscard]] std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture,
                                                     models::LayerRange layers, int ranks);

/// Elements of a unit in a column of `ranks`, padding included.
[[nodiscard]] std::size_t padded_elements(const models::UnitSpec& unit, int ranks);

/// Padded elements of the largest unit.
struct LargestUnits {
  std::size_t all = 0;      ///< maximum over all units
  std::size_t trained = 0;  ///< maximum over trained units
};
[[nodiscard]] LargestUnits largest_units(const models::Architecture& architecture, int ranks);

/// Returns whether master weights are separate from the layers' parameters, for trained units. `parameters`: tier of
/// the layers' parameters.
[[nodiscard]] bool separate_master(const models::Precision& precision, offload::TierKind parameters);
/// Scope of parameters. Without separate master weights it is the coarser of the scopes of P and OS.
[[nodiscard]] collectives::Scope held_parameters(const collectives::Sharding& sharding, bool separate_master);

/// Returns whether layers read parameters of trained or frozen units in place: not sharded, on the device.
/// `parameters`: their tier.
[[nodiscard]] bool are_in_place(bool trained, const UnitShardings& shardings, int ranks, int group_size,
                                const models::Precision& precision,
                                offload::TierKind parameters = offload::TierKind::device);

/// Bytes of a rank's persistent states, on all tiers.
struct StateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t frozen = 0;  ///< bytes of frozen parameters, included in `parameters`

  [[nodiscard]] std::size_t total() const noexcept { return parameters + gradients + optimizer; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

/// Bytes per rank, equal for all `ranks` of a column with groups of `group_size`. `parameters`: tier of trained ones.
[[nodiscard]] StateBytes state_bytes(std::span<const ShardedUnit> units, const UnitShardings& shardings, int ranks,
                                     int group_size, const models::Precision& precision,
                                     offload::TierKind parameters = offload::TierKind::device);

}  // namespace ranvier::actors
