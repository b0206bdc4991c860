// Layers run before the first step, for what happens when a kernel is launched for the first time.
#pragma once

#include "apps/train/plan/job_plan.hpp"
#include "apps/train/rank_run.hpp"
#include "runtime/device.hpp"

namespace ranvier::apps {

/// Each kind of layer once, with the microbatches of this run.
void run_layers(const RankRun& run, const JobPlan& plan, runtime::StreamView stream);

/// Where NCCL and stages wait for each other's ranks: CUDA loads a kernel when it is launched for the first time,
/// and may wait for all that runs on the GPU then, one of NCCL's kernels included, which waits for a peer. All
/// ranks call it. Throws FailedTogether.
void load_kernels(const RankRun& run, const JobPlan& plan, runtime::Device& device);

}  // namespace ranvier::apps
