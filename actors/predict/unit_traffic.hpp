// Number of gathers and reductions per unit, stage and batch. Any thread.
#pragma once

#include "actors/schedule/buffer_schedule.hpp"
#include "actors/schedule/policy.hpp"
#include "actors/states/sharded_unit.hpp"
#include "models/core/stage_slices.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::actors {

struct UnitTraffic {
  std::size_t elements = 0;
  std::uint64_t forward_gathers = 0;   ///< if parameters are sharded
  std::uint64_t backward_gathers = 0;  ///< if parameters are sharded
  std::uint64_t reductions = 0;        ///< reductions per microbatch, if gradients are sharded
  bool trained = true;                 ///< false: no reductions

  friend bool operator==(const UnitTraffic&, const UnitTraffic&) = default;
};

/// Counts as in the papers: each layer gathers its units for every pass of every microbatch.
[[nodiscard]] std::vector<UnitTraffic> moves_of(std::span<const ShardedUnit> units, std::uint64_t micro_steps);

/// The passes of a batch on one stage, through all of its slices.
struct BatchPasses {
  Policy policy = Policy::one_f_one_b;
  int stage = 0;
  int stages = 1;
  int microbatches = 1;
  bool reuse = true;  ///< ParameterStore::Options
};

/// Counts as a run does: with buffer reuse, a unit that is still in one of the `places` is not gathered again. `units`:
/// units of the stage. Exact for schedules with a fixed order. Message-driven ones count as 1F1B, or as ZB-H1 with
/// deferred weight gradients and one slice.
[[nodiscard]] std::vector<UnitTraffic> replayed_moves(const models::StageSlices& stage,
                                                      std::span<const ShardedUnit> units,
                                                      const BufferClasses& places, const BatchPasses& passes);

}  // namespace ranvier::actors
