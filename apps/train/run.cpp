#include "apps/train/run.hpp"

#include "apps/files/output_files.hpp"
#include "apps/kernels/kernel_choice.hpp"
#include "apps/memory/host_memory.hpp"
#include "apps/memory/job_memory.hpp"
#include "apps/memory/shard_table.hpp"
#include "apps/plan/start_plan.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/flag_names.hpp"
#include "apps/train/live_page.hpp"
#include "apps/train/report.hpp"
#include "models/core/run_layers.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "models/weights/partial_weights.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/files/atomic_file.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace ranvier::apps {

namespace {

constexpr const char* kernels_name = "kernels.json";  // in --checkpoint; default of --products-file
constexpr int does_not_fit_exit_code = 1;             // dry run only; not a failure

/// Throws unless all ranks find the folder of --save: they write the weights together.
void check_shared(const RankRun& run) {
  const std::string& save = run.options.run.save;
  if (save.empty()) return;
  const std::filesystem::path probe = weights_path(save).parent_path() / fmt::format(".{}.probe", run.id);
  struct Removed {
    ~Removed() {
      std::error_code ignored;
      if (!path.empty()) std::filesystem::remove(path, ignored);
    }
    std::filesystem::path path;
  } removed{run.speaks() ? probe : std::filesystem::path()};
  on_rank_0(run.session, [&] {
    if (!std::ofstream(probe))
      fail(ErrorCode::io, "--save cannot be written: {}; use a folder with write access", save);
  });
  on_all_ranks(run.session, [&] {
    std::error_code unknown;
    if (!std::filesystem::exists(probe, unknown))
      fail(ErrorCode::io,
           "--save {} is not shared: {} does not find the folder of rank 0; use a folder that all machines share",
           save, describe_rank(run.options, run.session.rank()));
  });
}

/// Queues each kind of layer once on `stream`, with the microbatch shapes of this run.
void run_layers(const RankRun& run, const JobPlan& plan, runtime::StreamView stream) {
  const actors::TrainerOptions& trainer = plan.trainer;
  // Shapes of a full microbatch, and of a smaller last one.
  const int row_samples = trainer.batch_size / trainer.grid.g_data;
  const int largest = std::min(trainer.microbatch_size, row_samples);
  const bool saves = std::ranges::any_of(plan.stages, saves_all_activations);
  std::vector<models::MicrobatchShape> shapes{
      {largest, run.job.architecture.positions, trainer.threads,
       saves ? models::SavedActivations::all : models::SavedActivations::few}};
  if (row_samples % largest != 0) {
    shapes.push_back(shapes.front());
    shapes.back().samples = row_samples % largest;
  }
  models::run_each_layer(run.job.architecture, trainer.precision, run.job.sample, shapes, stream);
}

/// Loads all kernels; needed with NCCL and several stages. The first launch of a kernel may wait for all work on the
/// GPU, including an NCCL kernel that waits for a peer, which can deadlock. All ranks call it.
void load_kernels(const RankRun& run, const JobPlan& plan, runtime::Device& device) {
  const auto stream = device.make_stream("loading", runtime::StreamWidth::whole);
  on_all_ranks(run.session, [&] { run_layers(run, plan, *stream); });
}

}  // namespace

Run::Run(const Program& program, TrainOptions options)
    : program_(program),
      options_(std::move(options)),
      transport_(program.session, loop_),
      run_{.session = program.session,
           .options = options_,
           .job = program.job,
           .loop = loop_,
           .transport = transport_,
           .watch = program.watch,
           .signals = program.signals,
           .live = program.live,
           .missing = program.missing,
           .id = broadcast_text(program.session, models::random_job())} {}

Run::~Run() {
  if (nccl_) nccl_->close();
}

int Run::execute() {
  run_.watch.does("plans its run", runtime::output_patience);
  plan_ = plan_job(run_);
  const bool quiet = options_.run.quiet && options_.run.request == Request::train;
  if (run_.speaks() && !options_.trainer.rollback && !quiet) print_plan();
  if (options_.run.request == Request::dry_run) return print_fit() ? EXIT_SUCCESS : does_not_fit_exit_code;
  if (run_.live != nullptr) run_.live->begin(about_run(options_, run_.job, plan_));
  run_.watch.does("looks for a checkpoint to resume from");
  resume_point_.emplace(run_);
  if (resume_point_->place().checkpoint.empty() && !options_.trainer.rollback)
    on_rank_0(run_.session, [&] { check_replaced(options_); });
  print_remarks();
  keep_algorithms();
  keep_kernels();
  if (stopped()) return stopped_exit_code;
  run_.watch.does("creates its devices");
  const int stage = runtime::Grid(options_.trainer.grid, options_.ranks).position(run_.session.rank()).stage;
  const JobCapacity capacity = capacity_of(run_.session, options_, run_.job);
  const runtime::MemoryPlan& memory = plan_.stages[static_cast<std::size_t>(stage)].memory;
  check_host_memory(run_.session, plan_.trainer, memory, [&] { return advice(capacity); });
  on_all_ranks(run_.session, [&] { devices_ = make_devices(run_, plan_.trainer.threads); });
  check_device_memory(run_.session, *devices_.compute, memory, [&] { return advice(capacity); });
  run_.watch.does("chooses kernels and collectives");
  choose();
  const bool trains = plan_.trainer.steps > 0;
  on_rank_0(run_.session, [&] {
    if (trains) profile_ = profile_of_run(options_, profile_search_path(), plan_.trainer.threads);
  });
  if (trains) measure_peak();
  run_.watch.does("allocates its memory and files");
  on_all_ranks(run_.session, [&] { training_.emplace(run_, plan_, devices_, *nccl_, *resume_point_); });
  load();
  if (stopped()) return stopped_exit_code;
  run_.watch.does("prepares its outputs", runtime::output_patience);
  on_all_ranks(run_.session, [&] { training_->prepare_checkpoints(); });
  check_files();
  on_all_ranks(run_.session, [&] { training_->open_outputs(); });
  const actors::Rank& rank = training_->rank();
  if (trains) peak_.measure(run_.session, rank.context().compute, plan_.trainer.precision.compute);
  run_.watch.does("connects its devices");
  nccl_->connect();
  print_files();
  watch_time_limit();
  training_->execute({.measured = peak_.best(), .data_sheet = data_sheet_});
  const bool stopped_early = rank.trainer().stopped_early();
  if (rank.trainer().rollback()) {
    // A stop request after the agreement on the bad step also counts: it is not repeated to the run that resumes.
    const bool wished = run_.session.largest(rank.trainer().stop_pending() ? 1 : 0) == 1;
    if (!wished) rollback_ = rank.trainer().rollback();
    took_checkpoints_ = run_.session.largest(training_->took_checkpoints() ? 1 : 0) == 1;
    print_trace();  // rank 0 has it
    training_->finish_outputs();
    return stopped_exit_code;  // unless this process resumes
  }
  if (run_.speaks()) print_summary();
  training_->finish_outputs();
  return stopped_early ? stopped_exit_code : EXIT_SUCCESS;
}

void Run::tell_failure(std::string_view message) {
  if (options_.run.serve.empty() || run_.speaks()) return;
  try {
    RankWatch::tell_failure(transport_, message);
  } catch (const std::exception&) {  // the caller prints the error and ends the job
  }
}

void Run::print_plan() const {
  fmt::print("{}\n", start_table(options_, run_.job.architecture, plan_.stages));
  if (!run_.job.data.empty()) fmt::print("{}\n\n", run_.job.data);
  if (const int cores = run_.session.cores(); options_.device.threads > cores)
    fmt::print(
        "warning: --threads {} is more than a rank's share of the cores, {}; use --threads {} or fewer ranks\n\n",
        options_.device.threads, cores, cores);
  if (options_.run.request == Request::dry_run) {
    fmt::print("{}", largest_memory_table(plan_.stages));
    fmt::print("\n{}", job_memory_table(run_.job.architecture, plan_.stages, plan_.trainer));
    fmt::print("\n{}", operations_line(plan_.stages));
    fmt::print("{}", checkpoint_line(plan_.stages, options_.trainer.grid.g_data));
    fmt::print("\n{}", shard_table(run_.job.architecture, plan_.trainer, plan_.stages, options_.shard.links));
  }
  std::fflush(stdout);
}

bool Run::print_fit() const {
  const JobCapacity capacity = capacity_of(run_.session, options_, run_.job);
  const FitResult verdict = apps::verdict(plan_.trainer, plan_.stages, capacity);
  if (run_.speaks()) fmt::print("\n{}", verdict.text);
  if (run_.speaks() && !verdict.states_fit) fmt::print("{}\n", advice(capacity));
  return run_.session.smallest(verdict.fits ? 1 : 0) == 1;
}

std::string Run::advice(JobCapacity capacity) const {
  // Without --device-memory, the GPU limits a run; a dry run needs no GPU.
  if (options_.device.device == DeviceFlag::cuda && options_.run.request == Request::train)
    capacity.device_bytes = device_budget(run_.session, options_.device.gpu, options_.device.memory_bytes);
  return memory_advice(options_, {plan_.trainer.node_of, plan_.trainer.threads}, capacity, program_.build);
}

void Run::keep_algorithms() {
  const offload::CheckpointReader* reader = resume_point_->reader();
  if (reader == nullptr) return;
  column_before_ = column_of_json(reader->manifest().about.if_contains("column"));
  const SavedColumn now = saved_column(plan_.trainer, plan_.stages.front().column->choices, false);
  const actors::AlgorithmNames& flags = options_.trainer.algorithms;
  const ColumnChange change = column_before_ ? column_change(*column_before_, now, flags) : ColumnChange();
  if (run_.speaks() && !change.line.empty()) fmt::print("{}\n", change.line);
  if (!change.keeps) return;
  options_.trainer.kept_algorithms = column_before_->algorithms;
  plan_ = plan_job(run_);
}

void Run::keep_kernels() {
  const std::filesystem::path folder = options_.checkpoint.folder;
  if (folder.empty() || !options_.device.products_file.empty()) return;
  options_.device.products_file = (folder / kernels_name).string();
  const std::filesystem::path before =
      std::filesystem::path(resume_point_->place().checkpoint).parent_path() / kernels_name;
  if (!run_.speaks() || resume_point_->place().checkpoint.empty()) return;
  std::error_code not_there;  // then kernels are measured again
  std::filesystem::copy_file(before, options_.device.products_file, not_there);
}

bool Run::stopped() const {
  if (run_.session.largest(run_.signals->asked() ? 1 : 0) == 0) return false;
  if (run_.speaks()) fmt::print("stopped before the next step\n");
  return true;
}

void Run::load() {
  const Clock::time_point began = Clock::now();
  run_.watch.does("loads its states");
  std::optional<Error> damage;
  do {
    on_all_ranks(run_.session, [&] { damage = training_->load(); });
  } while (resume_point_->pass_over(damage));
  resume_point_->loaded(std::chrono::duration<double>(Clock::now() - began).count());
  if (!resume_point_->keeps_base()) program_.job.untrained.reset();
  print_remarks();
}

void Run::print_remarks() {
  for (const std::string& remark : resume_point_->take_remarks()) fmt::print("{}\n", with_flags(remark));
  std::fflush(stdout);
}

void Run::choose() {
  runtime::Device& device = *devices_.compute;
  nccl_.emplace(run_, device);
  nccl_->choose();
  if (run_.speaks() && column_before_ && column_before_->nccl != nccl_->chosen())
    fmt::print("collectives now use {}: results are the same within rounding\n",
               nccl_->chosen() ? "NCCL instead of plans" : "plans instead of NCCL");
  if (nccl_needs_staging(options_, nccl_->chosen())) plan_.direct = false;
  if (run_.speaks() && run_.session.ranks() > 1 && options_.device.device == DeviceFlag::cuda) {
    fmt::print("messages: {}\n\n",
               plan_.direct ? "direct from GPU memory (CUDA-aware MPI)" : "staged through pinned memory");
    std::fflush(stdout);
  }
  if constexpr (runtime::with_cuda)
    choose_kernels(run_.session, options_, device,
                   [this](runtime::StreamView stream) { run_layers(run_, plan_, stream); });
  if (nccl_->chosen() && plan_.trainer.grid.g_inter > 1) load_kernels(run_, plan_, device);
}

void Run::measure_peak() {
  const auto stream = devices_.compute->make_stream("peak", runtime::StreamWidth::whole);
  const runtime::DType dtype = plan_.trainer.precision.compute;
  peak_.measure(run_.session, *stream, dtype);
  data_sheet_ = data_sheet_flops(run_.session, options_.device.device, options_.device.gpu, dtype);
  if constexpr (runtime::with_cuda) {
    if (options_.device.device == DeviceFlag::cuda) models::cuda::release_stream_workspace(*stream);
  }
}

void Run::check_files() {
  check_shared(run_);
  const std::string& save = options_.run.save;
  on_rank_0(run_.session, [&] {  // files of states have already allocated their space
    if (!save.empty()) check_space(save, saved_bytes(options_, run_.job));
  });
  check_checkpoint_space();
}

void Run::check_checkpoint_space() {
  const auto bytes =
      static_cast<std::uint64_t>(run_.session.sum(static_cast<long long>(training_->checkpoint_bytes())));
  const std::string& folder = options_.checkpoint.folder;
  if (folder.empty()) return;
  on_rank_0(run_.session, [&] {
    const std::size_t free = runtime::free_bytes_beside(std::filesystem::path(folder) / "lock");
    const int keep = options_.checkpoint.keep;
    fmt::print("checkpoints: {} each in {} ({} free); the newest {} are kept\n", runtime::format_bytes(bytes),
               folder, runtime::format_bytes(free), keep);
    const auto there =
        std::min<std::size_t>(resume_point_->folder()->list().size(), static_cast<std::size_t>(keep));
    if (const std::size_t more = static_cast<std::size_t>(keep) + 1 - there; free / more < bytes)
      fmt::print(
          "warning: --checkpoint-keep needs space for {} more checkpoints, but {} fit; use a smaller "
          "--checkpoint-keep\n",
          more, free / std::max<std::uint64_t>(bytes, 1));
    fmt::print("\n");
    std::fflush(stdout);
    if (bytes <= free) return;
    fail(ErrorCode::io,
         "--checkpoint {} has too little space: {} needed, {} free; free {} more, or use another disk", folder,
         runtime::format_bytes(bytes), runtime::format_bytes(free), runtime::format_bytes(bytes - free));
  });
}

void Run::watch_time_limit() {
  const auto& [limit, before] = std::pair(options_.checkpoint.time_limit, options_.checkpoint.stop_before);
  if (!limit || !run_.speaks()) return;
  const auto left = program_.began + (*limit - *before) - Clock::now();
  loop_.after(std::max<runtime::Duration>(left, runtime::Duration(0)), [this, limit = *limit, before = *before] {
    if (training_)
      training_->stop(fmt::format("--time-limit {} ends in {}", duration_text(limit), duration_text(before)));
  });
}

}  // namespace ranvier::apps
