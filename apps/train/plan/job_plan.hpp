// What a run of certain options on a certain job comes to, decided alike on all ranks before anything is allocated.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/train/rank_run.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

struct JobPlan {
  actors::TrainerOptions trainer;        ///< as asked for, and what nodes, devices and data add
  std::vector<actors::RankPlan> stages;  ///< of one rank of each
  bool direct = false;                   ///< MPI takes messages from the GPU's memory, and to it
};

/// All ranks call it. Throws FailedTogether where the options do not go together, or ranks would read other
/// samples. The job outlives the plan.
[[nodiscard]] JobPlan plan_job(const RankRun& run);

/// The plan of one rank of each stage; ranks of a column are alike. Throws ErrorCode::usage as plan_rank() does.
/// The architecture outlives the plans. Pure; any thread.
[[nodiscard]] std::vector<actors::RankPlan> plan_stages(const models::Architecture& architecture,
                                                        const models::SampleBytes& sample,
                                                        const actors::TrainerOptions& options);

[[nodiscard]] inline bool saves_all_activations(const actors::RankPlan& stage) {
  return stage.stage->capacity().saved == models::SavedActivations::all;
}
/// "all", "few", or "all on 2 of 3 stages".
[[nodiscard]] std::string saved_activations_text(std::span<const actors::RankPlan* const> stages);

/// What computing on a GPU takes of a rank beside the plan's arrays; none where the flags ask for another device.
/// `direct`: messages reach its memory without staging, as far as NCCL lets them. Pure; any thread.
[[nodiscard]] std::optional<actors::TrainerOptions::GpuMemory> gpu_memory(const TrainOptions& options, bool direct);

}  // namespace ranvier::apps
