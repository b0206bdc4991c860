// How often a batch gathers a unit's parameters and reduces its gradients on a stage. Any thread.
#pragma once

#include "actors/pipeline/policy.hpp"
#include "actors/states/sharded_unit.hpp"
#include "actors/states/buffer_schedule.hpp"
#include "models/stage_slices.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::actors {

struct UnitTraffic {
  std::size_t elements = 0;
  std::uint64_t forward_gathers = 0;   ///< where parameters are not whole
  std::uint64_t backward_gathers = 0;  ///< likewise
  std::uint64_t reductions = 0;        ///< of single microbatches, where gradients are not whole
  bool trained = true;                 ///< otherwise there is nothing to reduce

  friend bool operator==(const UnitTraffic&, const UnitTraffic&) = default;
};

/// As the papers count: every layer gathers what it uses for every pass of each of a row's microbatches.
[[nodiscard]] std::vector<UnitTraffic> moves_of(std::span<const ShardedUnit> units, std::uint64_t micro_steps);

/// The passes of a batch on one stage, through all of its slices.
struct BatchPasses {
  Policy policy = Policy::one_f_one_b;
  int stage = 0;
  int stages = 1;
  int microbatches = 1;
  bool reuse = true;  ///< ParameterStore::Options
};

/// As a run does: with reuse, a unit that an earlier use left in one of the `places` is not gathered again, and one
/// that has none never is. `units` are those of the stage. Exact where the policy fixes the order of the passes; one
/// that leaves it to messages is taken for 1F1B, or where weight gradients wait and the stage has one slice for ZB-H1.
[[nodiscard]] std::vector<UnitTraffic> replayed_moves(const models::StageSlices& stage,
                                                      std::span<const ShardedUnit> units,
                                                      const BufferClasses& places, const BatchPasses& passes);

}  // namespace ranvier::actors
