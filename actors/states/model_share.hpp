// A rank's share of a model as data: its layers, its shards of their units, and its column; identical on all ranks of a
// column except for positions. PlanContext is the argument of functions that plan an actor:
//
//   const auto plan = OffloadedParameters::plan(planner, prefetch, lends);   // before anything is allocated
//   OffloadedParameters records(context, share, plan);
#pragma once

#include "actors/schedule/chunk_schedule.hpp"
#include "actors/states/tier_options.hpp"
#include "actors/states/unit_shardings.hpp"
#include "actors/states/unit_states.hpp"
#include "collectives/plans/shard.hpp"
#include "models/core/stage_slices.hpp"
#include "offload/tiers.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/kernels/block_codec.hpp"

#include <memory>
#include <optional>

namespace ranvier::actors {

struct ModelShare {
  std::unique_ptr<models::StageSlices> stage;  ///< one or more slices (model chunks)
  std::unique_ptr<UnitStates> states;          ///< states of the stage's units
  std::unique_ptr<ColumnOptions> column;       ///< data-parallel group of the stage
  collectives::ShardFlow flow;                 ///< collectives of trained units, hop by hop
  collectives::ShardFlow frozen_flow;          ///< collectives of frozen units: gathers for passes only
  ChunkSchedule chunks;                        ///< order of reductions and updates
  /// Blocks to which a refresh rounds the layers' parameters of trained units; they are loaded with equal values.
  std::optional<runtime::BlockCode> refresh_code = std::nullopt;
};

struct PlanContext {
  const ModelShare& share;
  const TierOptions& tiers;  ///< tiers of states
  runtime::MemoryPlan& memory;
  offload::TierPlan& regions;  ///< regions of offloaded states
};

}  // namespace ranvier::actors
