// Plans a rank before any allocation: model chunks, microbatches in flight, memory. Pure, so it can also plan ranks of
// a grid that does not exist (`dry_run` with `world`). Any thread.
#pragma once

#include "actors/checkpoint/snapshot.hpp"
#include "actors/gradients/gradient_sync.hpp"
#include "actors/optimizer/optimizer.hpp"
#include "actors/pipeline/activation_checkpoints.hpp"
#include "actors/pipeline/stage_actor.hpp"
#include "actors/rank/trainer_options.hpp"
#include "actors/replicas/replica_check.hpp"
#include "actors/states/model_share.hpp"
#include "actors/states/offloaded_parameters.hpp"
#include "actors/states/parameter_store.hpp"
#include "models/core/sample_source.hpp"
#include "offload/tiers.hpp"
#include "runtime/base/grid.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace ranvier::actors {

/// Pinned staging of weights in another type than fp32, and of frozen ones, for weights files, which need fp32. It is
/// allocated before the first step, because nothing may be pinned later.
struct WeightStaging {
  static constexpr std::size_t value_bytes = std::size_t{256} << 10;  ///< bytes per read
  /// Ranges in files may start and end within a file block.
  static constexpr std::size_t block_bytes = value_bytes + 2 * offload::Tier::block_bytes;
  static constexpr std::size_t bytes = value_bytes + block_bytes;
};

/// Returns whether weights are read in another type than fp32, or from files.
[[nodiscard]] bool reads_through_staging(const UnitStates& states);

struct RankPlan : ModelShare {
  TrainerOptions options;
  const models::Architecture* architecture = nullptr;
  int rank = 0;
  runtime::Position position;
  std::vector<models::LayerRange> layers;  ///< by slice
  std::vector<int> slots;                  ///< microbatches in flight, by slice
  int recompute = 0;
  Policy policy = Policy::message_driven;  ///< effective schedule; a single stage has a fixed order
  runtime::MemoryPlan memory;
  offload::TierPlan tiers;
  ParameterStore::Plan parameters;
  OffloadedParameters::Plan offloaded_parameters;
  OffloadedGradients::Plan offloaded_gradients;
  GradientSync::Plan gradients;
  Optimizer::Plan optimizer;
  Snapshot::Plan snapshot;                               ///< empty: no checkpoints
  ReplicaCheck::Plan replicas;                           ///< empty: no replica checks
  std::vector<ActivationCheckpoints::Plan> checkpoints;  ///< by slice
  StageActor::Plan passes;
  std::vector<runtime::StagedMessages> staged_messages;  ///< messages outside of collectives
  Loader::Plan samples;
  /// By unit of the stage: whether this rank contributes the unit's squared gradients to the global norm.
  std::vector<bool> gives_squares;
  runtime::MemoryId answer_losses, sample_logits;  ///< last stage only, if evaluations or samples need them
};

/// Returns whether every step is applied for any gradients (no clipping, no dynamic loss scale), so that the optimizer
/// need not wait for the global norm. Bad steps end the job then.
[[nodiscard]] bool every_step_counts(const TrainerOptions& options);

/// Number of microbatches per row and step.
[[nodiscard]] int microbatches_of(const TrainerOptions& options);

/// Maximum number of microbatches with deferred weight gradients: TrainerOptions::deferred_limit, or a default. The
/// default is stage + 1 as in ZB-H1. With several model chunks, which do not share buffers, it is one more per chunk.
/// With recomputation it is 1, because a deferred microbatch needs all activations. A single stage has 0.
[[nodiscard]] int deferred_slots(const TrainerOptions& options, int stage);

/// Nodes of a column's rows, identical for all columns, and the group size.
struct ColumnShape {
  std::vector<int> node_of_row;
  int group_size = 1;
};
/// Throws ErrorCode::usage for a group size that does not divide the column.
[[nodiscard]] ColumnShape column_shape(const TrainerOptions& options);

/// Throws ErrorCode::usage if grid, batch and architecture do not fit together. `architecture` must outlive the plan.
[[nodiscard]] RankPlan plan_rank(const models::Architecture& architecture, const models::SampleBytes& sample,
                                 const TrainerOptions& options, int rank);

/// Assignment of model chunks to ranks.
[[nodiscard]] SliceMap slice_map(const TrainerOptions& options);

/// Layers of each slice (model chunk), from the front: as in `layers_per_stage`, or balanced by cost if it is empty.
/// Throws ErrorCode::usage if the numbers do not fit the slices or the layers.
[[nodiscard]] std::vector<models::LayerRange> slice_layers(const models::Architecture& architecture,
                                                           const SliceMap& map,
                                                           const std::vector<int>& layers_per_stage = {});

/// Stages whose layers declare a unit, by the unit's name; ascending.
[[nodiscard]] std::unordered_map<std::string, std::vector<int>> stages_of_units(
    const models::Architecture& architecture, const std::vector<models::LayerRange>& slices, const SliceMap& map);

}  // namespace ranvier::actors
