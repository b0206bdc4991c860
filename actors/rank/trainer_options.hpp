// What a run trains with, as far as actors read it. The same on all ranks. See rank_plan.hpp for what one rank makes of
// it.
#pragma once

#include "actors/exchange/algorithm_choice.hpp"
#include "actors/pipeline/policy.hpp"
#include "actors/rank/learning_rate.hpp"
#include "actors/rank/rollback.hpp"
#include "actors/rank/sample_options.hpp"
#include "actors/states/tier_options.hpp"
#include "actors/states/state_kind.hpp"
#include "actors/states/unit_shardings.hpp"
#include "actors/watch/bad_steps.hpp"
#include "collectives/link_file.hpp"
#include "collectives/shard.hpp"
#include "models/layer.hpp"
#include "models/text/question_file.hpp"
#include "runtime/grid.hpp"
#include "runtime/kernels/adamw.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

struct TrainerOptions {
  runtime::GridShape grid;
  int batch_size = 1;  ///< samples of a step over all rows; a multiple of g_data
  int microbatch_size = 1;
  int chunks_per_rank = 1;  ///< slices of the layers that each rank of a pipeline has; above 1 they are interleaved
  int pipeline_limit = 0;   ///< microbatches in flight per pipeline; 0: g_inter, or all under GPipe; with several
                            ///< chunks per rank in each chunk, and 0: slice_slots()
  Policy policy = Policy::message_driven;
  bool defer_weights = false;         ///< weight gradients wait; with message_driven that is zero_bubble
  std::optional<int> deferred_limit;  ///< most microbatches whose weight gradients wait; none: deferred_slots()
  std::vector<int>
      layers_per_stage;     ///< with several chunks per rank of each slice; empty: balanced by what layers
                            ///< compute
  int rebalance_steps = 0;  ///< after the first one, whose layers are timed to find a better split; 0: none
  int recompute = 0;        ///< layers per checkpointed segment; 0: off
  bool recompute_auto = false;
  /// None: all, if a rank's plan fits device_bytes then; else few.
  std::optional<models::SavedActivations> saved_activations;
  std::optional<std::size_t> device_bytes;  ///< device memory that a rank may plan; none: not known
  models::Precision precision;
  int threads = 1;  ///< of the device that will compute

  /// What computing on a GPU takes beside the arrays that the plan allocates.
  struct GpuMemory {
    std::size_t scratch_bytes = 0;  ///< of libraries, on the device
    bool staged = false;            ///< messages go by way of pinned memory
    bool nccl = false;              ///< collectives may go by NCCL
  };
  std::optional<GpuMemory> gpu;  ///< none: it is not one

  collectives::Sharding sharding;                         ///< what the ranks of a column hold of the states
  std::optional<collectives::Sharding> trained_sharding;  ///< of what is trained, where a part is; none: the same
  int group_size = 0;        ///< ranks of a column in a group; 0: those that share a node, where nodes are alike
  std::vector<int> node_of;  ///< by rank; empty: all on one node
  int prefetch = 2;          ///< layers whose parameters are gathered ahead of the one that computes
  TierOptions tiers;         ///< where states live
  bool reuse = true;         ///< of units that are still in their places
  AlgorithmNames algorithms;
  std::optional<KeptAlgorithms> kept_algorithms;  ///< of the runs that this one goes on from
  collectives::Links links = assumed_links;

  std::int64_t steps = 1;  ///< 0: the weights are evaluated once, and nothing is trained
  std::uint64_t seed = 0;
  LearningRateOptions learning_rate;
  runtime::AdamWOptions adamw;  ///< learning rate, step and gradient scale are set step by step
  double clip = 1.0;            ///< largest global gradient norm; 0: none
  LossScale loss_scale;
  BadStepOptions bad_steps;
  std::optional<Rollback> rollback;  ///< of the training whose checkpoint this one goes on from
  std::int64_t check_every = 0;      ///< steps after which copies of states are compared; 0: never
  std::int64_t eval_every = 0;       ///< steps; 0: never
  std::int64_t eval_samples = 0;     ///< of an evaluation, from the first of the validation's on
  std::shared_ptr<const models::QuestionFile> questions;  ///< that an evaluation answers; null: none
  SampleOptions sample;                                   ///< of text
  std::size_t checkpoint_staging = 0;  ///< bytes that states pass through to checkpoints; 0: none are taken

  [[nodiscard]] UnitShardings shardings() const { return {sharding, trained_sharding.value_or(sharding)}; }

  /// Test only: what goes wrong, where and when.
  struct Fault {
    enum class Kind {
      throws,    ///< an exception
      overflow,  ///< gradients become infinite once
      hangs,     ///< nothing is computed any more, messages are answered
      nan,       ///< gradients become no numbers once
      spike,     ///< the loss is a thousand times what it is, once
      damage,    ///< a bit of a state flips before the next comparison of copies
      stream,    ///< work on the compute stream does not end
      file,      ///< a request to a tier's files does not come back
      slow,      ///< from that step on passes take `times` as long
    };
    int rank = 0;
    std::int64_t step = 1;
    Kind kind = Kind::throws;
    StateKind array = StateKind::weights;  ///< that damage is done to
    double times = 2;
  };
  std::optional<Fault> fault;
};

}  // namespace ranvier::actors
