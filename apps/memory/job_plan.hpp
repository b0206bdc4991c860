// Plan of a run, made before any allocation and the same on all ranks.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "actors/rank/trainer_options.hpp"
#include "apps/job/job.hpp"
#include "apps/job/rank_run.hpp"
#include "apps/options/train_options.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

struct JobPlan {
  actors::TrainerOptions trainer;        ///< flags, completed from nodes, devices and data
  std::vector<actors::RankPlan> stages;  ///< plan of one rank per stage
  bool direct = false;                   ///< MPI sends and receives messages in GPU memory
};

/// Called by all ranks. Throws FailedTogether if options are incompatible or data differ between ranks. The job
/// outlives the plan.
[[nodiscard]] JobPlan plan_job(const RankRun& run);

/// Plan of one rank per stage; plans of a column are identical. Throws ErrorCode::usage like plan_rank(). The
/// architecture outlives the plans. Pure functions, callable from any thread.
[[nodiscard]] std::vector<actors::RankPlan> plan_stages(const models::Architecture& architecture,
                                                        const models::SampleBytes& sample,
                                                        const actors::TrainerOptions& options);

[[nodiscard]] inline bool saves_all_activations(const actors::RankPlan& stage) {
  return stage.stage->capacity().saved == models::SavedActivations::all;
}
/// "all", "few", or "all on 2 of 3 stages".
[[nodiscard]] std::string saved_activations_text(std::span<const actors::RankPlan* const> stages);

/// GPU memory of a rank besides the planned arrays; nullopt for other devices. `direct`: messages need no staging
/// unless NCCL requires it. Pure functions, callable from any thread.
[[nodiscard]] std::optional<actors::TrainerOptions::GpuMemory> gpu_memory(const TrainOptions& options, bool direct);

/// Node of every rank, the same result on all ranks: from --node-size, or else `asked`, the nodes that MPI reports.
/// --world needs no `asked`. Throws ErrorCode::usage if --links lacks a class of links that the job has.
[[nodiscard]] std::vector<int> nodes_of(const TrainOptions& options, std::span<const int> asked);

/// Settings for text that the model generates during training, from the flags, with the prompt as tokens. Throws
/// ErrorCode::usage if the job has no tokenizer, or if a token of the prompt is outside the model's vocabulary.
[[nodiscard]] actors::SampleOptions text_samples(const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
