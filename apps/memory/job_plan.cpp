#include "apps/memory/job_plan.hpp"

#include "apps/job/devices.hpp"
#include "apps/options/collectives_choice.hpp"
#include "apps/options/fault.hpp"
#include "apps/program/agreement.hpp"
#include "collectives/plans/link_file.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "models/tokenizers/document_frame.hpp"
#include "runtime/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ranvier::apps {

namespace {

/// Chooses direct or staged messages for GPUs. `all_reach`: MPI is CUDA-aware on every rank.
void plan_messages(const TrainOptions& options, bool all_reach, JobPlan& plan) {
  if (options.device.device != DeviceFlag::cuda) return;
  const PointToPoint wanted = options.device.point_to_point;
  if (wanted == PointToPoint::direct && !all_reach && options.run.request != Request::dry_run) {
    reject(
        "--p2p direct needs a CUDA-aware MPI on every rank; use --p2p staged, or an MPI that was built with CUDA");
  }
  plan.direct = wanted == PointToPoint::direct || (wanted == PointToPoint::automatic && all_reach);
  plan.trainer.gpu = gpu_memory(options, plan.direct);
}

void update_stages(const RankRun& run, JobPlan& plan) {
  plan.stages = plan_stages(run.job.architecture, run.job.sample, plan.trainer);
}

/// Plan made by this rank, before agreement with others. `device_bytes`: as in TrainerOptions.
JobPlan plan_alone(const RankRun& run, bool all_reach, std::optional<std::size_t> device_bytes) {
  const auto& [session, options, job, loop, transport, watch, signals, live, missing, id] = run;
  JobPlan plan{.trainer = options.trainer};
  actors::TrainerOptions& trainer = plan.trainer;
  if (options.data.eval_only) trainer.steps = 0;
  if (!trainer.rollback) trainer.fault = fault_from_environment();  // a fault happens once
  trainer.questions = job.questions;
  trainer.sample = text_samples(options, job);
  trainer.threads = device_threads(options, session);
  plan_messages(options, all_reach, plan);
  if (job.validation) {
    const std::int64_t all = job.validation->samples(), asked = options.data.eval_samples;
    trainer.eval_samples = asked == 0 ? all : std::min(asked, all);
  }
  trainer.node_of = nodes_of(options, session.nodes());
  trainer.device_bytes = device_bytes;
  update_stages(run, plan);
  // If memory is short, reduce --prefetch unless it is given.
  const auto fits = [&] {
    return std::ranges::all_of(plan.stages, [&](const actors::RankPlan& stage) {
      return stage.memory.bytes(runtime::MemorySpace::device) <= *options.device.memory_bytes;
    });
  };
  while (options.device.memory_bytes && !options.shard.prefetch && trainer.prefetch > 0 && !fits()) {
    --trainer.prefetch;
    update_stages(run, plan);
  }
  return plan;
}

/// Smallest GPU memory that a rank may plan; nullopt unless saved activations depend on it.
std::optional<std::size_t> gpu_bytes(const RankRun& run) {
  const auto& [session, options, job, loop, transport, watch, signals, live, missing, id] = run;
  if (options.device.device != DeviceFlag::cuda || options.trainer.saved_activations) return {};
  if (options.run.request == Request::dry_run) return options.device.memory_bytes;  // a dry run needs no GPU
  std::size_t bytes = 0;
  on_all_ranks(session, [&] { bytes = device_budget(session, options.device.gpu, options.device.memory_bytes); });
  return smallest_bytes(session, bytes);
}

void compare_samples(const RankRun& run, const JobPlan& plan) {
  runtime::MpiSession& session = run.session;
  const long long samples[] = {run.job.source ? run.job.source->samples() : 0, plan.trainer.eval_samples};
  for (const long long mine : samples) {
    const long long least = session.smallest(mine), most = session.largest(mine);
    on_all_ranks(session, [&] {
      if (least != most && mine == least)
        fail(ErrorCode::data,
             "data differ between ranks: rank {} has {} samples, another rank {}; use the same files on all ranks",
             session.rank(), least, most);
    });
  }
}

}  // namespace

JobPlan plan_job(const RankRun& run) {
  runtime::MpiSession& session = run.session;
  // If MPI of one rank is not CUDA-aware, no rank may send to its GPU memory.
  const bool on_gpu = run.options.device.device == DeviceFlag::cuda;
  const bool all_reach = on_gpu && session.smallest(runtime::mpi_reaches_gpus() ? 1 : 0) == 1;
  JobPlan plan;
  const std::optional<std::size_t> device_bytes = gpu_bytes(run);
  on_all_ranks(session, [&] { plan = plan_alone(run, all_reach, device_bytes); });
  compare_samples(run, plan);
  // The smallest prefetch counts: all ranks must gather units in the same order into the same buffers.
  const auto prefetch = static_cast<int>(session.smallest(plan.trainer.prefetch));
  on_all_ranks(session, [&] {
    if (std::exchange(plan.trainer.prefetch, prefetch) != prefetch) update_stages(run, plan);
  });
  return plan;
}

std::string saved_activations_text(std::span<const actors::RankPlan* const> stages) {
  const auto saving = static_cast<std::size_t>(
      std::ranges::count_if(stages, [](const auto* stage) { return saves_all_activations(*stage); }));
  if (saving == 0) return "few";
  return saving == stages.size() ? "all" : fmt::format("all on {} of {} stages", saving, stages.size());
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

std::vector<int> nodes_of(const TrainOptions& options, std::span<const int> asked) {
  const auto& [node_size, links, prefetch] = options.shard;
  std::vector<int> nodes;
  if (node_size == 0) {
    expect(std::ssize(asked) == options.ranks, "the nodes of {} ranks are known, and {} are needed", asked.size(),
           options.ranks);
    nodes.assign(asked.begin(), asked.end());
  }
  while (node_size > 0 && std::ssize(nodes) < options.ranks)
    nodes.push_back(static_cast<int>(nodes.size()) / node_size);
  if (!links.empty()) collectives::require_classes(options.trainer.links, nodes, "--links " + links);
  return nodes;
}

actors::SampleOptions text_samples(const TrainOptions& options, const Job& job) {
  actors::SampleOptions sample = options.trainer.sample;
  if (sample.every == 0) return sample;
  if (!job.tokenizer)
    reject("--sample-every {} needs a tokenizer; add --tokenizer PATH, or use --sample-every 0", sample.every);
  const models::Tokenizer& tokenizer = *job.tokenizer;
  const std::string& prompt = options.data.sample_prompt;
  sample.end_of_text = tokenizer.end_of_text();
  const models::SpecialTokenPolicy specials = options.data.specials;
  sample.prompt =
      models::make_prompt(prompt, tokenizer, specials, models::DocumentFrame(tokenizer, specials)).tokens;
  const auto known = static_cast<std::int32_t>(job.architecture.layers.back()->vocabulary());
  for (const std::int32_t token : sample.prompt) {
    if (known > 0 && token >= known)
      reject(
          "--sample-prompt '{}' contains token id {}, but the model's vocabulary has {} tokens; use a larger "
          "--vocab-size or another prompt",
          prompt, token, known);
  }
  sample.sampling.seed = options.trainer.seed;
  sample.sampling.tokens = known > 0 ? std::min(known, tokenizer.size()) : tokenizer.size();
  return sample;
}

}  // namespace ranvier::apps
