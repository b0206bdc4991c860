// Everything that is decided about one rank before anything is allocated: its slice of the layers, how many
// microbatches it keeps in flight, its memory. Pure: planned alike for this rank and for any rank of a grid
// that does not exist yet (`--dry-run --world`).
#pragma once

#include "actors/pipeline/activation_checkpoints.hpp"
#include "actors/exchange/algorithm_choice.hpp"
#include "actors/gradients/gradient_sync.hpp"
#include "actors/rank/learning_rate.hpp"
#include "actors/optimizer/optimizer.hpp"
#include "actors/states/parameter_store.hpp"
#include "actors/states/parameter_records.hpp"
#include "actors/pipeline/policy.hpp"
#include "actors/rank/sample_writer.hpp"
#include "actors/pipeline/stage_actor.hpp"
#include "actors/states/model_share.hpp"
#include "models/sample_source.hpp"
#include "models/text/choice_file.hpp"
#include "runtime/grid.hpp"
#include "runtime/kernels/adamw.hpp"
#include "runtime/staged_transport.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ranvier::actors {

struct TrainerOptions {
  runtime::GridShape grid;
  int batch_size = 1;  ///< samples of a step over all rows; a multiple of g_data
  int microbatch_size = 1;
  int pipeline_limit = 0;  ///< microbatches in flight per pipeline; 0: g_inter, or all under GPipe
  Policy policy = Policy::message_driven;
  int recompute = 0;  ///< layers per checkpointed segment; 0: off
  bool recompute_auto = false;
  models::Precision precision;
  int threads = 1;  ///< of the device that will compute

  /// What computing on a GPU takes beside the arrays that the plan allocates.
  struct GpuMemory {
    std::size_t scratch_bytes = 0;  ///< of libraries, on the device
    bool staged = false;            ///< messages go by way of pinned memory
    bool nccl = false;              ///< collectives may go by NCCL
  };
  std::optional<GpuMemory> gpu;  ///< none: it is not one

  collectives::Sharding sharding;  ///< what the ranks of a column hold of the states
  int group_size = 0;        ///< ranks of a column in a group; 0: those that share a node, where nodes are alike
  std::vector<int> node_of;  ///< by rank; empty: all on one node
  int prefetch = 2;          ///< layers whose parameters are gathered ahead of the one that computes
  TierOptions tiers;         ///< where states live
  bool reuse = true;         ///< of units that are still in their places
  AlgorithmNames algorithms;
  collectives::Links links = assumed_links;

  std::int64_t steps = 1;  ///< 0: the weights are evaluated once, and nothing is trained
  std::uint64_t seed = 0;
  LearningRateOptions learning_rate;
  runtime::AdamWOptions adamw;  ///< learning rate, step and gradient scale are set step by step
  double clip = 1.0;            ///< largest global gradient norm; 0: none
  LossScale loss_scale;
  std::int64_t eval_every = 0;                        ///< steps; 0: never
  std::int64_t eval_samples = 0;                      ///< of an evaluation, from the first of the validation's on
  std::shared_ptr<const models::ChoiceFile> choices;  ///< that an evaluation answers; null: none
  SampleOptions sample;                               ///< of text

  /// Test only: what goes wrong, where and when.
  struct Fault {
    enum class Kind {
      throws,    ///< an exception
      overflow,  ///< gradients become infinite once
      hangs,     ///< nothing is computed any more, messages are answered
      stream,    ///< work on the compute stream does not end
      file,      ///< a request to a tier's files does not come back
    };
    int rank = 0;
    std::int64_t step = 1;
    Kind kind = Kind::throws;
  };
  std::optional<Fault> fault;
};

struct RankPlan : ModelShare {
  TrainerOptions options;  ///< that it was made for
  const models::Architecture* architecture = nullptr;
  int rank = 0;
  runtime::Position position;
  models::LayerRange layers;
  int slots = 1;
  int recompute = 0;
  Policy policy = Policy::message_driven;  ///< a single stage has a fixed order
  std::vector<int> pipeline;               ///< MPI ranks of this row, by stage
  runtime::MemoryPlan memory;
  offload::TierPlan tiers;
  ParameterStore::Plan parameters;
  ParameterRecords::Plan parameter_records;
  GradientRecords::Plan gradient_records;
  GradientSync::Plan gradients;
  Optimizer::Plan optimizer;
  ActivationCheckpoints::Plan checkpoints;
  StageActor::Plan passes;
  std::vector<runtime::StagedMessages> staged_messages;  ///< beside collectives
  Loader::Plan samples;
  /// The global norm's squares are summed over the units of the architecture and their pieces: so many. Where this
  /// rank's part of a unit of the stage stands among them; none where another rank gives it.
  std::size_t squares = 0;
  std::vector<std::optional<std::size_t>> square_places;
  runtime::MemoryId choice_losses, sample_logits;  ///< on the last stage, where somebody asks for them
};

/// Whether a step takes effect whatever the gradients are, so that it need not wait for an answer of all ranks. Norms
/// that are not finite end the job then.
[[nodiscard]] bool every_step_counts(const TrainerOptions& options);

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

/// The slice of layers of every stage, balanced by their cost.
[[nodiscard]] std::vector<models::LayerRange> stage_layers(const models::Architecture& architecture, int g_inter);

/// The stages whose layers declare each unit, by its name; in order, each once.
[[nodiscard]] std::unordered_map<std::string, std::vector<int>> stages_of_units(
    const models::Architecture& architecture, const std::vector<models::LayerRange>& stages);

}  // namespace ranvier::actors
