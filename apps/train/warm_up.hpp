// Runs layers before the first step, so that kernels are loaded. Loop thread only.
#pragma once

#include "apps/job/rank_run.hpp"
#include "apps/memory/job_plan.hpp"
#include "runtime/device/device.hpp"

namespace ranvier::apps {

/// Queues each kind of layer once on `stream`, with the microbatch shapes of this run.
void run_layers(const RankRun& run, const JobPlan& plan, runtime::StreamView stream);

/// Loads all kernels; needed with NCCL and several stages. The first launch of a kernel may wait for all work on the
/// GPU, including an NCCL kernel that waits for a peer, which can deadlock. All ranks call it. Throws FailedTogether.
void load_kernels(const RankRun& run, const JobPlan& plan, runtime::Device& device);

}  // namespace ranvier::apps
