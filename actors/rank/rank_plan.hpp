// Everything that is decided about one rank before anything is allocated: its slices of the layers, how many
// microbatches it keeps in flight, its memory. Pure: planned alike for this rank and for any rank of a grid
// that does not exist yet (`--dry-run --world`).
#pragma once

#include "actors/checkpoint/snapshot.hpp"
#include "actors/pipeline/activation_checkpoints.hpp"
#include "actors/gradients/gradient_sync.hpp"
#include "actors/optimizer/optimizer.hpp"
#include "actors/states/parameter_store.hpp"
#include "actors/states/parameter_records.hpp"
#include "actors/pipeline/stage_actor.hpp"
#include "actors/rank/trainer_options.hpp"
#include "actors/states/model_share.hpp"
#include "actors/watch/replica_check.hpp"
#include "models/sample_source.hpp"
#include "runtime/grid.hpp"
#include "runtime/staged_transport.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ranvier::actors {

struct RankPlan : ModelShare {
  TrainerOptions options;  ///< that it was made for
  const models::Architecture* architecture = nullptr;
  int rank = 0;
  runtime::Position position;
  std::vector<models::LayerRange> layers;  ///< by slice
  std::vector<int> slots;                  ///< microbatches in flight, by slice
  int recompute = 0;
  Policy policy = Policy::message_driven;  ///< of passes; a single stage has a fixed order
  std::vector<int> pipeline;               ///< MPI ranks of this row, by stage
  runtime::MemoryPlan memory;
  offload::TierPlan tiers;
  ParameterStore::Plan parameters;
  ParameterRecords::Plan parameter_records;
  GradientRecords::Plan gradient_records;
  GradientSync::Plan gradients;
  Optimizer::Plan optimizer;
  Snapshot::Plan snapshot;                               ///< where checkpoints are taken
  ReplicaCheck::Plan replicas;                           ///< where copies are compared
  std::vector<ActivationCheckpoints::Plan> checkpoints;  ///< by slice
  StageActor::Plan passes;
  std::vector<runtime::StagedMessages> staged_messages;  ///< beside collectives
  Loader::Plan samples;
  /// By unit of the stage: whether this rank gives its part of the global norm's squares, and no other one.
  std::vector<bool> gives_squares;
  runtime::MemoryId answer_losses, sample_logits;  ///< on the last stage, where somebody asks for them
};

/// Whether a step takes effect whatever the gradients are, so that it need not wait for an answer of all ranks. Bad
/// steps end the job then.
[[nodiscard]] bool every_step_counts(const TrainerOptions& options);

/// Microbatches of a row's batch.
[[nodiscard]] int microbatches_of(const TrainerOptions& options);

/// Microbatches of which a stage keeps what weight gradients that wait need: TrainerOptions::deferred_limit, or
/// stage + 1, as many as ZB-H1 lets wait in the pipeline's slots, or one more in each of several chunks, which lend
/// each other none; with recomputation, where each takes as much as nothing recomputed would, one. 0 for a single
/// stage, where nothing else would come meanwhile.
[[nodiscard]] int deferred_slots(const TrainerOptions& options, int stage);

/// The nodes of a column's rows, alike for all columns, and the ranks of a group.
struct ColumnShape {
  std::vector<int> node_of_row;
  int group_size = 1;
};
/// Throws ErrorCode::usage for a group size that does not divide the column.
[[nodiscard]] ColumnShape column_shape(const TrainerOptions& options);

/// Throws ErrorCode::usage for grids and batches that do not fit each other or the architecture, which
/// outlives the plan.
[[nodiscard]] RankPlan plan_rank(const models::Architecture& architecture, const models::SampleBytes& sample,
                                 const TrainerOptions& options, int rank);

/// How the layers are spread over the pipeline.
[[nodiscard]] SliceMap slice_map(const TrainerOptions& options);

/// The slices of the layers, from the front, stage by stage where each has one: as many layers as `layers_per_stage`
/// says, or balanced by their cost where it is empty. Throws ErrorCode::usage for numbers that do not fit the slices or
/// the layers.
[[nodiscard]] std::vector<models::LayerRange> slice_layers(const models::Architecture& architecture,
                                                           const SliceMap& map,
                                                           const std::vector<int>& layers_per_stage = {});
/// Of stages with a slice each.
[[nodiscard]] inline std::vector<models::LayerRange> stage_layers(const models::Architecture& architecture,
                                                                  int g_inter,
                                                                  const std::vector<int>& layers_per_stage = {}) {
  return slice_layers(architecture, {.stages = g_inter}, layers_per_stage);
}

/// The stages whose layers declare each unit, by its name; in order, each once.
[[nodiscard]] std::unordered_map<std::string, std::vector<int>> stages_of_units(
    const models::Architecture& architecture, const std::vector<models::LayerRange>& slices, const SliceMap& map);

}  // namespace ranvier::actors
