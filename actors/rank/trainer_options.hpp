// Options of training as actors read them, identical on all ranks. rank_plan.hpp derives a rank's plan from them.
#pragma once

#include "actors/rank/bad_steps.hpp"
#include "actors/rank/learning_rate.hpp"
#include "actors/schedule/policy.hpp"
#include "actors/states/algorithm_choice.hpp"
#include "actors/states/state_kind.hpp"
#include "actors/states/tier_options.hpp"
#include "actors/states/unit_shardings.hpp"
#include "collectives/plans/link_file.hpp"
#include "collectives/plans/shard.hpp"
#include "models/core/filtered_samples.hpp"
#include "models/core/layer.hpp"
#include "models/generation/sampler.hpp"
#include "models/text/question_file.hpp"
#include "runtime/base/grid.hpp"
#include "runtime/kernels/adamw.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

/// Options of text samples during training; see sample_writer.hpp.
struct SampleOptions {
  std::int64_t every = 0;            ///< steps between samples; 0: never
  std::vector<std::int32_t> prompt;  ///< at least one token
  int tokens = 64;                   ///< maximum number of tokens to sample
  models::SamplingOptions sampling;
  std::optional<std::int32_t> end_of_text;  ///< token that ends a sample
};

/// Data that a run passes to its successor in a rollback to a checkpoint.
struct Rollback {
  std::int64_t newest_step = 0;  ///< newest step to resume from; later checkpoints may contain the bad update
  std::vector<models::SampleRange> left_out;  ///< dropped samples
  BadStepRow bad_steps;                       ///< current row of bad steps
};

struct TrainerOptions {
  runtime::GridShape grid;
  int batch_size = 1;  ///< samples per step over all rows; a multiple of g_data
  int microbatch_size = 1;
  int chunks_per_rank = 1;  ///< model chunks per rank; above 1 the pipeline is interleaved
  int pipeline_limit = 0;   ///< microbatches in flight per pipeline; 0: g_inter, or all under GPipe; with several
                            ///< chunks per rank in each chunk, and 0: slice_slots()
  Policy policy = Policy::message_driven;
  bool defer_weights = false;         ///< defer weight gradients; turns message_driven into zero_bubble
  std::optional<int> deferred_limit;  ///< maximum of microbatches with deferred weight gradients; none: automatic
  std::vector<int>
      layers_per_stage;     ///< by stage, or by slice with several chunks per rank; empty: balanced by cost
  int rebalance_steps = 0;  ///< steps after the first in which layers are timed, to find a better split; 0: none
  int recompute = 0;        ///< layers per checkpointed segment; 0: off
  bool recompute_auto = false;
  /// None: all if the rank's plan then fits device_bytes, otherwise few.
  std::optional<models::SavedActivations> saved_activations;
  std::optional<std::size_t> device_bytes;  ///< device memory that a rank may plan; none: unknown
  models::Precision precision;
  int threads = 1;  ///< compute threads of the device

  /// Memory of a GPU in addition to planned arrays.
  struct GpuMemory {
    std::size_t scratch_bytes = 0;  ///< device memory of libraries
    bool staged = false;            ///< messages pass through pinned memory
    bool nccl = false;              ///< collectives may use NCCL
  };
  std::optional<GpuMemory> gpu;  ///< none: CPU

  collectives::Sharding sharding;  ///< scopes of all states
  std::optional<collectives::Sharding>
      trained_sharding;         ///< scopes of trained units in partial training; none: same
  int group_size = 0;           ///< ranks per group of a column; 0: ranks per node, if equal on all nodes
  std::vector<int> node_of;     ///< by rank; empty: all on one node
  int prefetch = 2;             ///< layers whose parameters are gathered ahead of the current one
  TierOptions tiers;            ///< tiers of states
  collectives::WireTypes wire;  ///< types in messages of collectives
  bool reuse = true;            ///< keep gathered units until their buffer is needed
  AlgorithmNames algorithms;
  std::optional<KeptAlgorithms> kept_algorithms;  ///< choices of the run that this one resumes
  collectives::Links links = assumed_links;

  std::int64_t steps = 1;  ///< 0: evaluate once, without training
  std::uint64_t seed = 0;
  LearningRateOptions learning_rate;
  runtime::UpdateOptions adamw;  ///< learning rates, step and gradient scale are set in each step
  double clip = 1.0;             ///< maximum global gradient norm; 0: no clipping
  LossScale loss_scale;
  BadStepOptions bad_steps;
  std::optional<Rollback> rollback;                       ///< set if this run continues after a rollback
  std::int64_t check_every = 0;                           ///< steps between replica checks; 0: never
  std::int64_t eval_every = 0;                            ///< steps between evaluations; 0: never
  std::int64_t eval_samples = 0;                          ///< number of validation samples per evaluation
  std::shared_ptr<const models::QuestionFile> questions;  ///< questions of evaluations; null: none
  SampleOptions sample;                                   ///< text samples during training
  std::size_t checkpoint_staging = 0;                     ///< staging bytes of checkpoints; 0: no checkpoints

  [[nodiscard]] UnitShardings shardings() const { return {sharding, trained_sharding.value_or(sharding)}; }

  /// Injected fault, for tests.
  struct Fault {
    enum class Kind {
      throws,    ///< an exception
      overflow,  ///< gradients become infinite once
      hangs,     ///< the rank stops computing but still replies to messages
      nan,       ///< gradients become NaN once
      spike,     ///< the loss is multiplied by 1000 once
      damage,    ///< a bit of a state flips before the next replica check
      stream,    ///< work on the compute stream never ends
      file,      ///< a request to a tier's files never completes
      slow,      ///< passes take `times` as long, starting at `step`
    };
    int rank = 0;
    std::int64_t step = 1;
    Kind kind = Kind::throws;
    StateKind array = StateKind::weights;  ///< state that `damage` changes
    double times = 2;
  };
  std::optional<Fault> fault;
};

}  // namespace ranvier::actors
