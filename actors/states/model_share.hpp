// One rank's share of a model, as data: the layers of its slices, what it holds of their units, and with whom it shares
// them. Planned alike on every rank of a column. And what functions that plan a part read and add to:
//
//   const Part::Plan plan = Part::plan(planner, options);   // before anything exists
//   Part part(context, share, plan, …);
#pragma once

#include "actors/exchange/column_options.hpp"
#include "actors/gradients/chunk_schedule.hpp"
#include "actors/states/tier_options.hpp"
#include "actors/states/unit_states.hpp"
#include "collectives/shard.hpp"
#include "models/stage_slices.hpp"
#include "offload/tiers.hpp"
#include "runtime/arena.hpp"

#include <memory>

namespace ranvier::actors {

struct ModelShare {
  std::unique_ptr<models::StageSlices> stage;  ///< one slice of the layers, or several
  std::unique_ptr<UnitStates> states;          ///< of the stage's units
  std::unique_ptr<ColumnOptions> column;       ///< the ranks with the same stage
  collectives::ShardFlow flow;                 ///< what goes through the column of trained units, hop by hop
  collectives::ShardFlow frozen_flow;  ///< likewise of frozen ones, which are gathered for passes and no more
  ChunkSchedule chunks;                ///< in which units are reduced and stepped

  [[nodiscard]] const collectives::ShardFlow& flow_of(bool trained) const noexcept {
    return trained ? flow : frozen_flow;
  }
};

struct PlanContext {
  const ModelShare& share;
  const TierOptions& tiers;  ///< where states live
  runtime::MemoryPlan& memory;
  offload::TierPlan& regions;  ///< of what lives off the device
};

}  // namespace ranvier::actors
