#include "apps/train/plan/job_plan.hpp"

#include "apps/program/agreement.hpp"
#include "apps/train/devices.hpp"
#include "apps/train/kernels/collectives_choice.hpp"
#include "apps/train/options/fault.hpp"
#include "apps/train/plan/nodes.hpp"
#include "apps/train/plan/text_samples.hpp"
#include "models/ops/stream_workspace_cuda.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::apps {

namespace {

/// How messages reach the GPUs' memory. `all_reach`: MPI of every rank can.
void plan_messages(const TrainOptions& options, bool all_reach, JobPlan& plan) {
  if (options.device.device != DeviceFlag::cuda) return;
  const PointToPoint wanted = options.device.point_to_point;
  if (wanted == PointToPoint::direct && !all_reach && options.run.request != Request::dry_run) {
    fail(ErrorCode::usage,
         "--p2p direct, but MPI does not reach a GPU's memory on every rank, as it says: use --p2p staged, or an "
         "MPI that was built with CUDA");
  }
  plan.direct = wanted == PointToPoint::direct || (wanted == PointToPoint::automatic && all_reach);
  plan.trainer.gpu = gpu_memory(options, plan.direct);
}

void update_stages(const RankRun& run, JobPlan& plan) {
  plan.stages = plan_stages(run.job.architecture, run.job.sample, plan.trainer);
}

/// What this rank would do alone.
JobPlan plan_alone(const RankRun& run, bool all_reach) {
  const auto& [session, options, job, loop, transport, watch, signals, live, missing, id] = run;
  JobPlan plan{.trainer = options.trainer};
  actors::TrainerOptions& trainer = plan.trainer;
  if (options.data.eval_only) trainer.steps = 0;
  if (!trainer.rollback) trainer.fault = fault_from_environment();  // it happens once
  trainer.questions = job.questions;
  trainer.sample = text_samples(options, job);
  trainer.threads = device_threads(options, session);
  plan_messages(options, all_reach, plan);
  if (job.validation) {
    const std::int64_t all = job.validation->samples(), asked = options.data.eval_samples;
    trainer.eval_samples = asked == 0 ? all : std::min(asked, all);
  }
  trainer.node_of = nodes_of(options, session.nodes());
  update_stages(run, plan);
  // Fewer units are gathered ahead where memory is short, unless somebody asked for so many.
  const auto fits = [&] {
    return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const actors::RankPlan& stage) {
      return stage.memory.bytes(runtime::MemorySpace::device) <= *options.device.memory_bytes;
    });
  };
  while (options.device.memory_bytes && !options.shard.prefetch && trainer.prefetch > 0 && !fits()) {
    --trainer.prefetch;
    update_stages(run, plan);
  }
  return plan;
}

void compare_samples(const RankRun& run, const JobPlan& plan) {
  runtime::MpiSession& session = run.session;
  const long long samples[] = {run.job.source ? run.job.source->samples() : 0, plan.trainer.eval_samples};
  for (const long long mine : samples) {
    const long long least = session.smallest(mine), most = session.largest(mine);
    together(session, [&] {
      if (least != most && mine == least)
        fail(ErrorCode::data, "rank {} has data of {} samples, and another has {}: give all ranks the same files",
             session.rank(), least, most);
    });
  }
}

}  // namespace

JobPlan plan_job(const RankRun& run) {
  runtime::MpiSession& session = run.session;
  // One rank whose MPI cannot would stand beside others that send to its GPU's memory.
  const bool on_gpu = run.options.device.device == DeviceFlag::cuda;
  const bool all_reach = on_gpu && session.smallest(runtime::mpi_reaches_gpus() ? 1 : 0) == 1;
  JobPlan plan;
  together(session, [&] { plan = plan_alone(run, all_reach); });
  compare_samples(run, plan);
  // The rank with the least memory decides: units are gathered in the same order and into the same places
  // everywhere.
  const auto prefetch = static_cast<int>(session.smallest(plan.trainer.prefetch));
  together(session, [&] {
    if (std::exchange(plan.trainer.prefetch, prefetch) != prefetch) update_stages(run, plan);
  });
  return plan;
}

std::optional<actors::TrainerOptions::GpuMemory> gpu_memory(const TrainOptions& options, bool direct) {
  if (options.device.device != DeviceFlag::cuda) return {};
  const bool nccl = may_use_nccl(options);
  return actors::TrainerOptions::GpuMemory{.scratch_bytes = models::cuda::stream_scratch_bytes,
                                           .staged = !direct || nccl_needs_staging(options, nccl),
                                           .nccl = nccl};
}

std::vector<actors::RankPlan> plan_stages(const models::Architecture& architecture,
                                          const models::SampleBytes& sample,
                                          const actors::TrainerOptions& options) {
  std::vector<actors::RankPlan> stages;
  for (int stage = 0; stage < options.grid.g_inter; ++stage)
    stages.push_back(actors::plan_rank(architecture, sample, options, stage * options.grid.g_data));
  return stages;
}

}  // namespace ranvier::apps
