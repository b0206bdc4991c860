#include "apps/train/run.hpp"

#include "actors/exchange/gather.hpp"
#include "actors/watch/watchdog.hpp"
#include "apps/program/agreement.hpp"
#include "apps/train/plan/host_memory.hpp"
#include "apps/train/plan/job_memory.hpp"
#include "apps/train/kernels/kernel_choice.hpp"
#include "apps/train/files/output_files.hpp"
#include "apps/train/report.hpp"
#include "apps/train/plan/shard_table.hpp"
#include "apps/train/plan/sharding.hpp"
#include "apps/train/stop_signals.hpp"
#include "models/initialize.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "models/run_layers.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/atomic_file.hpp"
#include "runtime/cuda_build.hpp"
#include "runtime/cuda_memory.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/log_file.hpp"
#include "runtime/memory_limit.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>


namespace ranvier::apps {

namespace {

actors::TrainerOptions trainer_options(const TrainOptions& options) {
  actors::TrainerOptions result;
  result.grid = options.grid.shape;
  result.batch_size = options.batch.batch_size;
  result.microbatch_size = options.batch.microbatch_size;
  result.pipeline_limit = options.batch.pipeline_limit;
  result.policy = options.batch.policy == PipelinePolicy::gpipe                      ? actors::Policy::gpipe
                  : options.batch.policy == PipelinePolicy::one_forward_one_backward ? actors::Policy::one_f_one_b
                                                                                     : actors::Policy::message_driven;
  result.recompute = options.batch.recompute.mode == Recompute::Mode::every ? options.batch.recompute.interval : 0;
  result.recompute_auto = options.batch.recompute.mode == Recompute::Mode::automatic;
  result.precision = options.precision.types;
  result.sharding = options.shard.sharding;
  result.algorithms = {options.shard.all_gather, options.shard.reduce_scatter, options.shard.all_reduce};
  result.reuse = options.shard.reuse;
  result.tiers.optimizer = options.tiers.optimizer;
  result.tiers.parameters = options.tiers.parameters;
  result.tiers.gradients = options.tiers.gradients;
  result.tiers.activations = options.tiers.activations;
  result.tiers.bucket_elements = static_cast<std::size_t>(options.tiers.bucket_elements);
  result.tiers.chunk_buckets = static_cast<std::size_t>(options.tiers.chunk_buckets);
  result.tiers.step = options.tiers.step;
  result.tiers.commit = options.tiers.commit;
  result.tiers.files.directories = nvme_directories(options.tiers);
  result.tiers.files.checksums = options.tiers.checksums;
  result.prefetch = options.shard.prefetch.value_or(result.prefetch);
  result.steps = options.data.eval_only ? 0 : options.run.steps;
  result.seed = options.run.seed;

  const OptimizerOptions& optimizer = options.optimizer;
  using Decay = actors::LearningRateOptions::Decay;
  result.learning_rate = {.peak = optimizer.learning_rate,
                          .least = optimizer.min_learning_rate,
                          .warmup_steps = optimizer.warmup_steps,
                          .steps = options.run.steps,
                          .decay = optimizer.decay == LearningRateDecay::constant ? Decay::constant
                                   : optimizer.decay == LearningRateDecay::linear ? Decay::linear
                                                                                  : Decay::cosine};
  result.adamw = {.beta1 = optimizer.beta1,
                  .beta2 = optimizer.beta2,
                  .epsilon = optimizer.epsilon,
                  .weight_decay = optimizer.weight_decay};
  result.clip = optimizer.clip;
  const bool half = result.precision.compute == runtime::DType::f16;
  result.loss_scale = {.scale = half ? options.precision.loss_scale : 1.0, .dynamic = half};
  result.eval_every = options.data.eval_every;
  return result;
}

/// RANVIER_FAULT=rank:step:throw|fp16-overflow|hang makes a run fail on purpose; see apps/README.md.
std::optional<actors::TrainerOptions::Fault> fault_from_environment() {
  const char* text = std::getenv("RANVIER_FAULT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  actors::TrainerOptions::Fault fault;
  char kind[32] = "";
  long long step = 0;
  if (std::sscanf(text, "%d:%lld:%31s", &fault.rank, &step, kind) == 3) {
    fault.step = step;
    using Kind = actors::TrainerOptions::Fault::Kind;
    for (const auto& [name, value] : {std::pair{"throw", Kind::throws}, {"fp16-overflow", Kind::overflow}, {"hang", Kind::hangs}}) {
      if (std::strcmp(kind, name) != 0) continue;
      fault.kind = value;
      return fault;
    }
  }
  fail(ErrorCode::usage, "RANVIER_FAULT={}: write rank:step:throw, rank:step:fp16-overflow or rank:step:hang", text);
}

/// A rank's share of the cores of its node, unless --threads says otherwise. The host's threads mean nothing to a GPU.
int device_threads(const TrainOptions& options, const runtime::MpiSession& session) {
  if (options.device.device == DeviceChoice::cuda) return 1;
  if (options.device.threads > 0) return options.device.threads;
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / session.local_ranks());
}

std::unique_ptr<runtime::Device> make_device(const TrainOptions& options, int threads,
                                             const runtime::MpiSession& session) {
  if constexpr (runtime::with_cuda) {
    if (options.device.device == DeviceChoice::cuda) {
      runtime::CudaDeviceOptions gpu = gpu_of_rank(session, options.device.gpu);
      gpu.budget_bytes = options.device.memory_bytes;
      gpu.graphs = options.device.cuda_graphs;
      return runtime::make_cuda_device(gpu);
    }
  }
  const runtime::CpuDeviceOptions cpu{.threads = threads, .budget_bytes = options.device.memory_bytes};
  return options.device.device == DeviceChoice::inline_ ? runtime::make_inline_device(cpu) : runtime::make_cpu_device(cpu);
}

runtime::Duration timeout_of(const TrainOptions& options) {
  return std::chrono::duration_cast<runtime::Duration>(std::chrono::duration<double>(options.run.timeout_seconds));
}

std::vector<models::TensorToStore> saved_tensors(const Job& job) {
  return models::tensors_of(job.architecture.units(), runtime::DType::f32);
}

SavedWeights::Beside saved_beside(const Job& job) {
  SavedWeights::Beside beside = job.beside_weights;
  if (!job.config.empty()) beside["config.json"] = job.config;
  return beside;
}

/// Ranks that this one exchanges messages with, whoever begins.
std::vector<int> peers_of(const actors::RankPlan& plan, int ranks) {
  std::vector<int> peers;
  for (int stage : {plan.position.stage - 1, plan.position.stage + 1}) {
    if (stage >= 0 && stage < static_cast<int>(plan.pipeline.size())) peers.push_back(plan.pipeline[static_cast<std::size_t>(stage)]);
  }
  for (const auto& partner : plan.gradients.tied.options.partners) {
    if (partner) peers.push_back(*partner);
  }
  const auto& column = plan.column->ranks;  // collectives and pulls
  peers.insert(peers.end(), column.begin(), column.end());
  for (int bit = 1; bit < ranks; bit <<= 1) {  // the binomial tree of the consensus
    if ((plan.rank & bit) != 0) {
      peers.push_back(plan.rank - bit);
      break;
    }
    if (plan.rank + bit < ranks) peers.push_back(plan.rank + bit);
  }
  // Rank 0 hears from everybody at the end.
  for (int rank = 0; rank < ranks; ++rank) {
    if (plan.rank == 0 || rank == 0) peers.push_back(rank);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  std::erase(peers, plan.rank);
  return peers;
}

/// On a GPU an allocation in the middle of a run may wait for a kernel that waits for this rank.
void close_memory(runtime::Device& device, runtime::MemorySpace space) {
  if constexpr (runtime::with_cuda) {
    if (device.kind() == runtime::DeviceKind::cuda) runtime::close_cuda_memory(device, space);
  }
}

}  // namespace

Run::Run(runtime::MpiSession& session, TrainOptions options, Job job)
    : session_(session),
      options_(std::move(options)),
      job_(std::move(job)),
      trainer_options_(trainer_options(options_)),
      speaks_(session.rank() == 0) {}

Run::~Run() {
  // Before memory is freed that NCCL may still work on, for peers that will not come.
  if (nccl_) nccl_->close();
}

bool Run::execute() {
  // One rank whose MPI cannot would stand beside others that send to its GPU's memory.
  if (options_.device.device == DeviceChoice::cuda)
    all_reach_gpus_ = session_.smallest(runtime::mpi_reaches_gpus() ? 1 : 0) == 1;
  together(session_, [&] { plan(); });
  compare_samples();
  // The rank with the least memory decides: units are gathered in the same order and into the same places everywhere.
  const auto prefetch = static_cast<int>(session_.smallest(trainer_options_.prefetch));
  together(session_, [&] {
    if (std::exchange(trainer_options_.prefetch, prefetch) != prefetch) plan_stages();
  });
  if (speaks_) {
    fmt::print("{}\n", start_table(options_, job_.architecture, stages_));
    if (!job_.data.empty()) fmt::print("{}\n\n", job_.data);
    if (options_.run.request == Request::dry_run) {
      fmt::print("{}", largest_memory_table(stages_));
      fmt::print("\n{}", job_memory_table(job_.architecture, stages_, trainer_options_));
      fmt::print("\n{}", operations_line(stages_));
      fmt::print("\n{}", shard_table(options_, job_.architecture, trainer_options_, stages_));
    }
    std::fflush(stdout);
  }
  if (options_.run.request == Request::dry_run) return say_verdict();
  check_memory();
  together(session_, [&] { make_devices(); });
  choose_collectives();
  choose_kernels(session_, options_, *device_, [this](runtime::StreamView stream) { run_layers(stream); });
  load_kernels();
  if (trainer_options_.steps > 0) measure_peak();
  together(session_, [&] { build(); });
  together(session_, [&] {  // what keeps states in files has taken its space
    if (speaks_ && !options_.run.save.empty())
      check_space(options_.run.save, SavedWeights::bytes(saved_tensors(job_), saved_beside(job_)));
  });
  if (trainer_options_.steps > 0) peak_.measure(session_, trainer_->compute(), trainer_options_.precision.compute);
  if (nccl_) connect_nccl();
  const long long cleared = session_.sum(trainer_->cleared_folders());
  if (const std::string tier = trainer_->tier_description(); speaks_ && !tier.empty()) {
    fmt::print("files: {}\n", tier);
    if (cleared > 0) fmt::print("cleared there: {} folder{} that dead jobs had left\n", cleared, cleared > 1 ? "s" : "");
    fmt::print("\n");
    std::fflush(stdout);
  }
  train();
  conclude();
  return true;
}

void Run::plan() {
  trainer_options_.fault = fault_from_environment();
  trainer_options_.choices = job_.choices;
  plan_samples();
  trainer_options_.threads = device_threads(options_, session_);
  if (options_.device.device == DeviceChoice::cuda) {
    const PointToPoint wanted = options_.device.point_to_point;
    if (wanted == PointToPoint::direct && !all_reach_gpus_ && options_.run.request != Request::dry_run) {
      fail(ErrorCode::usage,
           "--p2p direct, but MPI does not reach a GPU's memory on every rank, as it says: use --p2p staged, or an MPI "
           "that was built with CUDA");
    }
    direct_ = wanted == PointToPoint::direct || (wanted == PointToPoint::automatic && all_reach_gpus_);
    trainer_options_.gpu = {.scratch_bytes = models::cuda::stream_scratch_bytes,
                            .staged = !direct_ || nccl_needs_staging(options_, may_use_nccl(options_)),
                            .nccl = may_use_nccl(options_)};
  }
  if (job_.validation) {
    const std::int64_t all = job_.validation->samples(), asked = options_.data.eval_samples;
    trainer_options_.eval_samples = asked == 0 ? all : std::min(asked, all);
  }
  const ShardSetting setting = resolve_sharding(options_, session_.nodes());
  trainer_options_.node_of = setting.node_of;
  trainer_options_.group_size = setting.group_size;
  trainer_options_.links = setting.links;
  plan_stages();
  // Fewer units are gathered ahead where memory is short, unless somebody asked for so many.
  const auto fits = [this] {
    return std::all_of(stages_.begin(), stages_.end(), [this](const actors::RankPlan& stage) {
      return stage.memory.bytes(runtime::MemorySpace::device) <= *options_.device.memory_bytes;
    });
  };
  while (options_.device.memory_bytes && !options_.shard.prefetch && trainer_options_.prefetch > 0 && !fits()) {
    --trainer_options_.prefetch;
    plan_stages();
  }
}

void Run::compare_samples() {
  const long long samples[] = {job_.source ? job_.source->samples() : 0, trainer_options_.eval_samples};
  for (const long long mine : samples) {
    const long long least = session_.smallest(mine), most = session_.largest(mine);
    together(session_, [&] {
      if (least != most && mine == least)
        fail(ErrorCode::data, "rank {} has data of {} samples, and another has {}: give all ranks the same files",
             session_.rank(), least, most);
    });
  }
}

void Run::plan_samples() {
  const DataOptions& data = options_.data;
  if (data.sample_every == 0) return;
  if (!job_.tokenizer)
    fail(ErrorCode::usage,
         "--sample-every {} writes text, and no tokenizer says what tokens stand for: give --tokenizer gpt2:PATH, or 0",
         data.sample_every);
  const models::Tokenizer& tokenizer = *job_.tokenizer;
  actors::SampleOptions sample{.every = data.sample_every,
                               .prompt = tokenizer.encode(data.sample_prompt),
                               .tokens = data.sample_tokens,
                               .end_of_text = tokenizer.end_of_text()};
  if (sample.prompt.empty()) {
    const auto end_of_text = tokenizer.end_of_text();
    sample.prompt = end_of_text ? std::vector{*end_of_text} : tokenizer.encode("\n");
  }
  const auto known = static_cast<std::int32_t>(job_.architecture.layers.back()->vocabulary());
  for (const std::int32_t token : sample.prompt) {
    if (known > 0 && token >= known)
      fail(ErrorCode::usage,
           "--sample-prompt '{}' has token {}, and the model knows {}: raise --vocab-size, or begin otherwise",
           data.sample_prompt, token, known);
  }
  sample.sampling.seed = options_.run.seed;
  sample.sampling.tokens = tokenizer.size();
  trainer_options_.sample = std::move(sample);
}

void Run::plan_stages() { stages_ = apps::plan_stages(job_.architecture, job_.sample, trainer_options_); }

Room Run::room() const {
  // Ranks and machines may be given different amounts: the smallest decides.
  const auto least = [this](std::optional<std::size_t> bytes) -> std::optional<std::size_t> {
    constexpr long long unknown = std::numeric_limits<long long>::max();
    const auto known = static_cast<long long>(std::min(bytes.value_or(unknown), std::size_t{unknown}));
    const long long smallest = session_.smallest(known);
    return smallest == unknown ? std::nullopt : std::optional(static_cast<std::size_t>(smallest));
  };
  const bool imagined = options_.grid.ranks != session_.ranks();
  std::optional<std::size_t> host, disk;
  if (!imagined) {
    host = runtime::memory_limit().bytes;
    for (const auto& directory : nvme_directories(options_.tiers))
      disk = disk.value_or(0) + runtime::free_bytes_beside(directory / "states");
  }
  return {.device_bytes = least(options_.device.memory_bytes),
          .host_bytes = least(host),
          .disk_bytes = least(disk),
          .device_is_host = options_.device.device != DeviceChoice::cuda,
          .may_change_prefetch = !options_.shard.prefetch};
}

bool Run::say_verdict() const {
  const Verdict verdict = apps::verdict(job_.architecture, job_.sample, trainer_options_, stages_, room());
  if (speaks_) fmt::print("\n{}", verdict.text);
  return session_.smallest(verdict.fits ? 1 : 0) == 1;
}

void Run::check_memory() {
  const int stage = runtime::Grid(options_.grid.shape, options_.grid.ranks).position(session_.rank()).stage;
  const runtime::MemoryPlan& plan = stages_[static_cast<std::size_t>(stage)].memory;
  const std::vector<long long> all = session_.all(static_cast<long long>(host_bytes(options_, plan)));
  std::size_t needed = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (session_.nodes()[rank] == session_.nodes()[static_cast<std::size_t>(session_.rank())])
      needed += static_cast<std::size_t>(all[rank]);
  }
  together(session_,
           [&] { check_host_memory(options_, plan, needed, session_.local_ranks(), runtime::memory_limit()); });
}

void Run::make_devices() {
  device_ = make_device(options_, trainer_options_.threads, session_);
  host_ = runtime::make_cpu_device({.threads = 1});
  for (runtime::Device* device : {device_.get(), host_.get()}) {
    device->on_failure([this](std::exception_ptr error) { loop_.stop(error); });
  }
  files_ = host_->make_stream("files", runtime::StreamWidth::one);
  reports_ = host_->make_stream("reports", runtime::StreamWidth::one);
  if (!may_use_nccl(options_)) return;
  if constexpr (runtime::with_nccl) {
    try {
      nccl_library_ = collectives::open_nccl();
    } catch (const Error& error) {
      if (options_.device.collectives == CollectiveCarrier::nccl) throw;
      nccl_obstacle_ = error.what();
    }
  } else {
    nccl_obstacle_ = "this build has no NCCL";
  }
}

void Run::choose_collectives() {
  if (options_.device.device != DeviceChoice::cuda) return;
  NcclSituation situation{.obstacle = nccl_obstacle_};
  const long long version = nccl_library_ ? nccl_library_->version() : 0;
  if (session_.smallest(version) == session_.largest(version) && version > 0)
    situation.version = static_cast<int>(version);
  long long gpu = 0;
  if constexpr (runtime::with_nccl) gpu = collectives::gpu_identity(*device_);
  const auto gpus = session_.all(gpu);
  situation.gpus.assign(gpus.begin(), gpus.end());
  together(session_, [&] { collectives_ = apps::choose_collectives(options_, situation); });
  if (nccl_needs_staging(options_, collectives_.nccl)) direct_ = false;
  if (!speaks_ || session_.ranks() == 1) return;
  if (!collectives_.line.empty()) fmt::print("{}\n", collectives_.line);
  fmt::print("messages: {}\n\n", direct_ ? "MPI reaches the GPUs' memory itself" : "staged through pinned memory");
  std::fflush(stdout);
}

void Run::connect_nccl() {
  session_.barrier();  // ranks that share a GPU have taken what they planned
  close_memory(*device_, runtime::MemorySpace::pinned);
  if constexpr (runtime::with_nccl) free_before_nccl_ = runtime::cuda_free_bytes(*device_);
  nccl_->connect([this] { loop_.stop(); });
  loop_.run();
  session_.barrier();
  const long long taken = session_.largest(static_cast<long long>(taken_by_nccl()));
  if (speaks_) fmt::print("{}\n\n", nccl_memory_line(static_cast<std::size_t>(taken)));
}

std::size_t Run::taken_by_nccl() const {
  if constexpr (runtime::with_nccl) {
    return free_before_nccl_ - std::min(free_before_nccl_, runtime::cuda_free_bytes(*device_));
  }
  return 0;
}

void Run::run_layers(runtime::StreamView stream) const {
  // The largest microbatch of a row and, where they do not divide it, the last.
  const int row_samples = options_.batch.batch_size / options_.grid.shape.g_data;
  const int largest = std::min(options_.batch.microbatch_size, row_samples);
  std::vector<models::MicrobatchShape> shapes{{largest, job_.architecture.positions, trainer_options_.threads}};
  if (row_samples % largest != 0) {
    shapes.push_back(shapes.front());
    shapes.back().samples = row_samples % largest;
  }
  models::run_each_layer(job_.architecture, trainer_options_.precision, job_.sample, shapes, stream);
}

void Run::load_kernels() {
  if (!collectives_.nccl || options_.grid.shape.g_inter == 1) return;
  const auto stream = device_->make_stream("loading", runtime::StreamWidth::whole);
  together(session_, [&] { run_layers(*stream); });
}

void Run::measure_peak() {
  const auto stream = device_->make_stream("peak", runtime::StreamWidth::whole);
  peak_.measure(session_, *stream, trainer_options_.precision.compute);
  if constexpr (runtime::with_cuda) {
    if (options_.device.device == DeviceChoice::cuda) models::cuda::release_stream_workspace(*stream);
  }
}

void Run::build() {
  const RunOptions& run = options_.run;
  if (speaks_) prepare_outputs(options_);
  actors::WeightSource weights = [seed = run.seed](const models::UnitSpec& unit, std::size_t begin,
                                                   std::span<float> out) {
    models::initialize(unit, seed, begin, begin + out.size(), out.data());
  };
  if (!run.init_from.empty()) {
    const auto file = std::make_shared<const models::Safetensors>(models::find_weights(run.init_from, "--init-from"),
                                                                  run.ignored_tensors);
    models::check_weights(*file, job_.architecture.units());
    weights = [file](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
      models::read_unit(*file, unit, begin, begin + out.size(), out.data());
    };
  }
  actors::RankPlan plan = actors::plan_rank(job_.architecture, job_.sample, trainer_options_, session_.rank());
  runtime::Transport& transport = transport_of_actors();
  if (staged_) {
    for (const runtime::StagedMessages& messages : plan.staged_messages) staged_->reserve(messages);
  }
  if (collectives_.nccl) {
    const auto& names = trainer_options_.algorithms;
    nccl_ = std::make_unique<collectives::NcclColumn>(
        loop_, transport_, *device_, *nccl_library_,
        collectives::NcclColumn::Options{.ranks = plan.column->ranks,
                                         .ways = {collectives::nccl_way(names.all_gather),
                                                  collectives::nccl_way(names.reduce_scatter),
                                                  collectives::nccl_way(names.all_reduce)},
                                         .timeout = timeout_of(options_)});
    plan.column->source = nccl_.get();
  }
  trainer_.emplace(loop_, transport, *device_, job_.architecture, *job_.source, job_.validation.get(), trainer_options_,
                   std::move(plan));
  trainer_->load_weights(weights);
  if (speaks_) make_reporter();
}

runtime::Transport& Run::transport_of_actors() {
  if (options_.device.device != DeviceChoice::cuda || direct_) return transport_;
  return staged_.emplace(loop_, transport_, *device_);
}

void Run::make_reporter() {
  const double batch = options_.batch.batch_size;
  reporter_.emplace(
      actors::Reporter::Options{
          .steps = trainer_options_.steps,
          .tokens_per_step = batch * static_cast<double>(job_.source->losses_per_sample()),
          .flops_per_step = batch * job_.architecture.flops_per_sample(),
          .shows_loss_scale = trainer_options_.loss_scale.dynamic,
          .bytes_per_token = job_.bytes_per_token},
      trainer_->plan().memory, open_metrics(options_));
}

void Run::train() {
  actors::Watchdog watchdog(
      loop_, transport_, trainer_->trace(),
      {.timeout = timeout_of(options_),
       .peers = peers_of(trainer_->plan(), session_.ranks()),
       .computing = [this] { return loop_.own_work().any(); },
       .progress = [this] { return progress_; },
       .describe = [this](int rank) { return describe_rank(options_, rank); },
       .under_way = [this] { return under_way(); },
       .waited_for = [this] { return nccl_ ? nccl_->waited_for() : std::vector<runtime::Transport::Pending>(); },
       .heartbeat = [this] { return loop_.heartbeat(); }});
  const StopSignals signals(loop_, transport_,
                            {.request_stop = [this] { trainer_->request_stop(); },
                             .expected = [this] { return expected_end(); },
                             .waits_for = [&watchdog] { return watchdog.waits_for(); },
                             .describe = [this](int rank) { return describe_rank(options_, rank); },
                             .say = runtime::say_on_stderr,
                             .end = [](int status) { std::_Exit(status); }});
  session_.barrier();
  trainer_->trace().restart();
  if (reporter_) reporter_->start(loop_.now(), peak_.best());
  step_clock_.start();
  started_ = std::chrono::steady_clock::now();
  trainer_->start({.step =
                       [this](const actors::StepResult& result) {
                         ++progress_;
                         step_clock_.done(result.step);
                         close_memory(*device_, runtime::MemorySpace::device);
                         report([this, result, now = loop_.now()] { reporter_->step(result, now); });
                       },
                   .evaluation =
                       [this](const actors::EvaluationResult& result) {
                         ++progress_;
                         report([this, result, now = loop_.now()] { reporter_->evaluation(result, now); });
                       },
                   .sample =
                       [this](std::int64_t step, std::span<const std::int32_t> tokens) {
                         ++progress_;
                         std::string text;
                         for (const std::int32_t token : tokens) job_.tokenizer->decode(token, text);
                         report([this, step, text = std::move(text), now = loop_.now()] {
                           reporter_->sample(step, text, now);
                         });
                       },
                   .done = [this] { save(); }});
  loop_.run();
  files_->synchronize();
  reports_->synchronize();
}

std::string Run::expected_end() const {
  const std::string& save = options_.run.save;
  const std::string saves =
      save.empty() ? "nothing is saved, as there is no --save" : "saves to " + weights_path(save).string();
  if (saving_) return fmt::format("the training is over, and the run {}", save.empty() ? "ends" : saves);
  const StepClock::Expectation step = step_clock_.expectation();
  return fmt::format("the run ends after step {}, {}, and {}", step.step, to_string(step), saves);
}

std::string Run::under_way() const {
  const auto operations = trainer_->running();
  if (operations.empty()) return {};
  return fmt::format("step {}: {}", trainer_->step(), fmt::join(operations, "; "));
}

void Run::report(std::function<void()> what) {
  if (reporter_) reports_->launch([what = std::move(what)](runtime::ComputePool&) { what(); });
}

void Run::write(std::function<void()> what, runtime::Handler done) {
  files_->launch([what = std::move(what)](runtime::ComputePool&) { what(); });
  loop_.after_work(*files_, {"report", "a write"}, [this, done = std::move(done)] {
    ++progress_;
    done();
  });
}

void Run::save() {
  trained_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  report([this] { reporter_->finish(); });
  saving_ = true;
  if (options_.run.save.empty()) return collect();
  collector_.emplace(transport_, *trainer_, job_.architecture, options_.grid.shape);
  const auto collect_weights = [this] {
    collector_->run(
        [this](const models::UnitSpec& unit, std::size_t begin, std::span<const float> values,
               runtime::Handler stored) {
          write([this, &unit, begin, values] { weights_->put(unit, begin, values); }, std::move(stored));
        },
        [this] {
          if (!weights_) return collect();
          write([this] { weights_->commit(); }, [this] { collect(); });
        });
  };
  if (!speaks_) return collect_weights();
  write([this] {
    weights_.emplace(options_.run.save, saved_tensors(job_), saved_beside(job_), timeout_of(options_));
  }, collect_weights);
}

void Run::collect() {
  const RankTotals totals = totals_of(*trainer_, trained_seconds_);
  actors::gather(transport_, std::string(reinterpret_cast<const char*>(&totals), sizeof totals),
                 [this](std::vector<std::string> blocks) {
                   for (const std::string& block : blocks) {
                     RankTotals& rank = totals_.emplace_back();
                     std::memcpy(&rank, block.data(), sizeof rank);
                   }
                   if (options_.run.trace.empty()) return loop_.stop();
                   actors::gather(transport_, trainer_->trace().chrome_events(), [this](std::vector<std::string> events) {
                     if (!speaks_) return loop_.stop();
                     write([this, events = std::move(events)] { write_trace(events); }, [this] { loop_.stop(); });
                   });
                 });
}

/// A picture of the run is not worth the run: the weights are saved, and the end says what is missing.
void Run::write_trace(const std::vector<std::string>& events) {
  try {
    runtime::AtomicFile file(options_.run.trace);
    std::string text = "{\"traceEvents\":[\n";
    for (const std::string& rank : events) {
      if (rank.empty()) continue;
      if (text.back() != '\n') text += ",\n";
      text += rank;
    }
    text += "\n]}\n";
    file.append(text.data(), text.size());
    file.commit();
  } catch (const Error& error) {
    lost_trace_ = error.what();
  }
}

void Run::conclude() const {
  if (!reporter_) return;
  const RunOptions& run = options_.run;
  if (trainer_options_.steps == 0) {
    fmt::print("evaluated in {}\n", actors::format_duration(trained_seconds_));
    if (!run.metrics.empty()) fmt::print("metrics: {}\n", run.metrics);
    return;
  }
  fmt::print("\n{}", end_table(totals_, trainer_options_));
  const double steps = static_cast<double>(reporter_->steps());
  const double tokens = steps * options_.batch.batch_size * static_cast<double>(job_.source->losses_per_sample());
  fmt::print("{} {:.0f} steps, {} tokens in {}: {} tokens/s, {:.1f} ms a step (median)\n",
             trainer_->stopped_early() ? "stopped after" : "trained", steps, actors::format_count(tokens),
             actors::format_duration(trained_seconds_), actors::format_count(tokens / trained_seconds_),
             1e3 * reporter_->median_step_seconds());
  if (const std::string raises = actors::describe_raises(reporter_->ceiling()); !raises.empty())
    fmt::print("{}\n", raises);
  fmt::print("loss {:.5f} → {:.5f}\n", reporter_->first_loss().value_or(0), reporter_->last_loss());
  // More than as it connected: some buffers wait for the first collective that needs them.
  if (nccl_) fmt::print("{}\n", nccl_memory_line(taken_by_nccl()));
  if (const runtime::Repeats repeats = trainer_->compute().stream().repeats(); repeats.kept > 0) {
    fmt::print("CUDA graphs of rank 0: {} kept, {} of {} calls of blocks were one of them\n", repeats.kept,
               repeats.replayed, repeats.replayed + repeats.queued);
  } else if (!repeats.refused.empty()) {
    fmt::print("no CUDA graphs on rank 0, since {}\n", repeats.refused);
  }
  if (staged_ && staged_->staging_bytes() > 0) {
    fmt::print("messages of rank 0 took {} of pinned memory\n", runtime::format_bytes(staged_->staging_bytes()));
  }
  if (!run.save.empty()) fmt::print("weights: {}\n", weights_path(run.save).string());
  if (!run.metrics.empty()) fmt::print("metrics: {}\n", run.metrics);
  if (!run.trace.empty() && lost_trace_.empty())
    fmt::print("trace: {} (open it in https://ui.perfetto.dev)\n", run.trace);
  std::fflush(stdout);
  if (const std::string lost = reporter_->lost_metrics(); !lost.empty())
    runtime::say_on_stderr(fmt::format("ranvier: warning: {}\n", lost));
  if (!lost_trace_.empty())
    runtime::say_on_stderr(fmt::format("ranvier: warning: --trace {} was not written: {}\n", run.trace, lost_trace_));
}

std::string describe_rank(const TrainOptions& options, int rank) {
  const auto position = runtime::Grid(options.grid.shape, options.grid.ranks).position(rank);
  return fmt::format("rank {} (stage {}, row {})", rank, position.stage, position.row);
}

}  // namespace ranvier::apps
