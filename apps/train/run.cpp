#include "apps/train/run.hpp"

#include "apps/program/agreement.hpp"
#include "apps/train/conclusion.hpp"
#include "apps/train/files/output_files.hpp"
#include "apps/train/kernels/kernel_choice.hpp"
#include "apps/train/kernels/warm_up.hpp"
#include "apps/train/plan/fit.hpp"
#include "apps/train/plan/host_memory.hpp"
#include "apps/train/plan/job_memory.hpp"
#include "apps/train/plan/room.hpp"
#include "apps/train/plan/shard_table.hpp"
#include "apps/train/report.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/cuda_build.hpp"

#include <cstdio>
#include <utility>

namespace ranvier::apps {

Run::Run(runtime::MpiSession& session, TrainOptions options, Job job)
    : options_(std::move(options)),
      job_(std::move(job)),
      transport_(session, loop_),
      run_{session, options_, job_, loop_, transport_} {}

Run::~Run() {
  if (nccl_) nccl_->close();
}

bool Run::execute() {
  plan_ = plan_job(run_);
  if (run_.speaks()) say_plan();
  if (options_.run.request == Request::dry_run) return say_verdict();
  const int stage = runtime::Grid(options_.trainer.grid, options_.ranks).position(run_.session.rank()).stage;
  check_host_memory(run_.session, plan_.trainer, plan_.stages[static_cast<std::size_t>(stage)].memory);
  together(run_.session, [&] { devices_ = make_devices(run_, plan_.trainer.threads); });
  choose();
  const bool trains = plan_.trainer.steps > 0;
  if (trains) measure_peak();
  together(run_.session, [&] { training_.emplace(run_, plan_, devices_, *nccl_); });
  check_files();
  const actors::Rank& rank = training_->rank();
  if (trains) peak_.measure(run_.session, rank.context().compute, plan_.trainer.precision.compute);
  nccl_->connect();
  say_files(run_, rank);
  training_->execute(peak_.best());
  if (run_.speaks()) conclude(run_, plan_.trainer, *training_, *nccl_);
  return true;
}

void Run::say_plan() const {
  fmt::print("{}\n", start_table(options_, job_.architecture, plan_.stages));
  if (!job_.data.empty()) fmt::print("{}\n\n", job_.data);
  if (options_.run.request == Request::dry_run) {
    fmt::print("{}", largest_memory_table(plan_.stages));
    fmt::print("\n{}", job_memory_table(job_.architecture, plan_.stages, plan_.trainer));
    fmt::print("\n{}", operations_line(plan_.stages));
    fmt::print("\n{}", shard_table(job_.architecture, plan_.trainer, plan_.stages, options_.shard.links));
  }
  std::fflush(stdout);
}

bool Run::say_verdict() const {
  const Room room = room_of(run_.session, options_, job_);
  const Verdict verdict = apps::verdict(job_.architecture, job_.sample, plan_.trainer, plan_.stages, room);
  if (run_.speaks()) fmt::print("\n{}", verdict.text);
  return run_.session.smallest(verdict.fits ? 1 : 0) == 1;
}

void Run::choose() {
  runtime::Device& device = *devices_.compute;
  nccl_.emplace(run_, device);
  nccl_->choose();
  if (nccl_needs_staging(options_, nccl_->chosen())) plan_.direct = false;
  if (run_.speaks() && run_.session.ranks() > 1 && options_.device.device == DeviceChoice::cuda) {
    fmt::print("messages: {}\n\n",
               plan_.direct ? "MPI reaches the GPUs' memory itself" : "staged through pinned memory");
    std::fflush(stdout);
  }
  choose_kernels(run_.session, options_, device,
                 [this](runtime::StreamView stream) { run_layers(run_, plan_.trainer, stream); });
  if (nccl_->chosen() && plan_.trainer.grid.g_inter > 1) load_kernels(run_, plan_.trainer, device);
}

void Run::measure_peak() {
  const auto stream = devices_.compute->make_stream("peak", runtime::StreamWidth::whole);
  peak_.measure(run_.session, *stream, plan_.trainer.precision.compute);
  if constexpr (runtime::with_cuda) {
    if (options_.device.device == DeviceChoice::cuda) models::cuda::release_stream_workspace(*stream);
  }
}

void Run::check_files() {
  together(run_.session, [&] {  // what keeps states in files has taken its space
    const std::string& save = options_.run.save;
    if (run_.speaks() && !save.empty())
      check_space(save, SavedWeights::bytes(saved_tensors(job_), saved_beside(job_)));
  });
}

}  // namespace ranvier::apps
