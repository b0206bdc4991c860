#include "actors/predict/predicted_job.hpp"

#include "offload/virtual_files.hpp"
#include "runtime/base/error.hpp"
#include "runtime/trace/trace.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace ranvier::actors {

using runtime::MemorySpace;
using runtime::SpanKind;

namespace {

/// Node of every rank, numbered from 0 in order of appearance.
std::vector<int> nodes_of(const TrainerOptions& options) {
  std::vector<int> nodes = options.node_of;
  nodes.resize(static_cast<std::size_t>(options.grid.ranks()), nodes.empty() ? 0 : nodes.back());
  std::map<int, int> numbers;
  for (int& node : nodes) node = numbers.try_emplace(node, static_cast<int>(numbers.size())).first->second;
  return nodes;
}

/// Options of the training steps only, without checkpoints, evaluations and samples.
TrainerOptions steps_of(TrainerOptions options, int steps) {
  options.steps = steps;
  options.rollback.reset();
  options.check_every = 0;
  options.eval_every = 0;
  options.questions = nullptr;
  options.sample.every = 0;
  options.checkpoint_staging = 0;
  options.fault.reset();
  return options;
}

runtime::ComputedDelays cluster_of(const TrainerOptions& options, const runtime::MachineProfile& profile,
                                   const PredictionOptions& how) {
  return {.node_of = nodes_of(options),
          .links = profile.links,
          .cores = {.cores = profile.cores, .alone = profile.threads},
          .files = {profile.read_bytes_per_second, profile.write_bytes_per_second, profile.file_latency_seconds},
          .handler_seconds = profile.handler_seconds,
          .slow_nodes = how.disturbances.slow_nodes};
}

void check(const TrainerOptions& options, const runtime::MachineProfile& profile, const PredictionOptions& how) {
  if (how.steps < 2) fail(ErrorCode::usage, "number of predicted steps is too small: {}; use 2 or more", how.steps);
  if (how.disturbances.jitter < 0)
    fail(ErrorCode::usage, "jitter is negative: {}; use 0 or more", how.disturbances.jitter);
  for (const auto* const all : {&how.disturbances.slow_ranks, &how.disturbances.slow_nodes}) {
    for (const double times : *all) {
      if (!(times > 0)) fail(ErrorCode::usage, "slowdown factor is not positive: {}; use a number above 0", times);
    }
  }
  if (how.disturbances.no_overlap && !(options.gpu && options.gpu->nccl))
    fail(ErrorCode::usage, "prediction without overlap needs NCCL collectives; choose NCCL");
  if (profile.gpu != options.gpu.has_value())
    fail(ErrorCode::usage, "profile '{}' describes {}, but the job is planned for {}; use the same kind for both",
         profile.name, profile.gpu ? "a GPU" : "a CPU", options.gpu ? "GPUs" : "CPUs");
  if (options.steps < 1) fail(ErrorCode::usage, "an evaluation cannot be predicted; train at least one step");
  if (options.grid.ranks() > 1)
    collectives::require_classes(profile.links, nodes_of(options), fmt::format("profile '{}'", profile.name));
}

/// Throws if `needed` exceeds `there`; 0: unknown.
void check_room(const char* of, const std::string& whose, std::size_t needed, std::size_t there,
                const runtime::MachineProfile& profile, const runtime::MemoryPlan& plan) {
  if (there == 0 || needed <= there) return;
  fail(ErrorCode::memory, "{} needs {} of {}, but a machine of profile '{}' has {}:\n{}", whose,
       runtime::format_bytes(needed), of, profile.name, runtime::format_bytes(there), plan.table());
}

double factor_of(const std::vector<double>& factors, int index) {
  return static_cast<std::size_t>(index) < factors.size() ? factors[static_cast<std::size_t>(index)] : 1.0;
}

/// Returns whether blocks of `rows` rows occupy separate nodes, distributed identically, in each stage.
bool fill_nodes_alike(const runtime::GridShape& grid, int rows, std::span<const int> nodes) {
  std::map<int, int> block_of_node;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int block = rank / rows;  // numbered over all stages; a stage consists of complete blocks
    if (block_of_node.try_emplace(nodes[static_cast<std::size_t>(rank)], block).first->second != block)
      return false;
  }
  const auto begins_node = [&](int rank) {
    return rank % rows == 0 || nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(rank - 1)];
  };
  std::size_t begun = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int first_block = rank / grid.g_data * grid.g_data;
    if (begins_node(rank) != begins_node(first_block + (rank - first_block) % rows)) return false;
    if (begins_node(rank)) ++begun;
  }
  return begun == block_of_node.size();  // otherwise ranks of a node are not consecutive
}

}  // namespace

void StagePrediction::add(const StagePrediction& other, double share) {
  for (double StagePrediction::* const part :
       {&StagePrediction::forward_seconds, &StagePrediction::backward_seconds, &StagePrediction::weights_seconds,
        &StagePrediction::optimizer_seconds, &StagePrediction::other_seconds, &StagePrediction::step_seconds})
    this->*part += share * (other.*part);
}

void Prediction::write_trace(const std::filesystem::path& path) const {
  if (trace.empty())
    fail(ErrorCode::usage, "prediction has no trace for {}; set PredictionOptions::trace", path.string());
  runtime::write_trace_file(path, trace);
}

int distinct_rows(const TrainerOptions& options, std::span<const int> nodes) {
  const runtime::GridShape& grid = options.grid;
  const int group = column_shape(options).group_size;
  for (int rows = 1; rows < grid.g_data; ++rows) {
    if (grid.g_data % rows != 0 || (group % rows != 0 && rows % group != 0)) continue;
    if (fill_nodes_alike(grid, rows, nodes)) return rows;
  }
  return grid.g_data;
}

/// Agreement of a rank with equivalents. Each equivalent takes part on its own loop and transport and contributes
/// zeros; `done` runs when the last of them has finished.
class PredictedJob::EquivalentConsensus final : public Consensus {
 public:
  /// Loop and transport must outlive this object.
  EquivalentConsensus(runtime::EventLoop& loop, runtime::Transport& transport)
      : Consensus(loop, transport), loop_(&loop) {}

  void add(runtime::EventLoop& loop, runtime::Transport& transport) {
    others_.push_back({&loop, std::make_unique<Consensus>(loop, transport, staging_)});
  }

  void agree(std::vector<double>& values, runtime::Handler done) override {
    values_.assign(values.size(), 0.0);
    missing_ = 1 + others_.size();
    done_ = std::move(done);
    for (const Other& other : others_)
      other.loop->post([this, &other] { other.consensus->agree(values_, [this] { one_done(false); }); });
    Consensus::agree(values, [this] { one_done(true); });
  }

  /// Bytes that each rank sent to each of its peers in the last agreement.
  [[nodiscard]] std::size_t bytes() const noexcept { return values_.size() * sizeof(double); }
  /// Peers of an equivalent, by its index.
  [[nodiscard]] std::vector<int> peers_of(std::size_t twin) const { return others_[twin].consensus->peers(); }

 private:
  struct Other {
    runtime::EventLoop* loop;
    std::unique_ptr<Consensus> consensus;
  };
  void one_done(bool mine) {
    if (--missing_ > 0) return;
    if (mine) return std::exchange(done_, nullptr)();
    loop_->post(std::exchange(done_, nullptr));
  }

  runtime::EventLoop* loop_;
  // Shared by all equivalents. Values that decide anything are zero in predictions; sums of compute times are
  // meaningless, because equivalents add to the same memory.
  Staging staging_ = std::make_shared<std::vector<double>>();
  std::vector<double> values_;
  std::vector<Other> others_;
  std::size_t missing_ = 0;
  runtime::Handler done_;
};

PredictedJob::PredictedJob(const models::Architecture& architecture, const models::SampleSource& samples,
                           const TrainerOptions& options, const runtime::MachineProfile& profile,
                           const runtime::PhantomDeviceOptions& device, const PredictionOptions& how)
    : architecture_(&architecture),
      options_((check(options, profile, how), options)),
      profile_(&profile),
      how_(how),
      cluster_(cluster_of(options, profile, how)),
      grid_(options.grid, options.grid.ranks()),
      device_(device) {
  device_.apart = profile.gpu;
  device_.threads = profile.threads;
  device_.jitter = how.disturbances.jitter;
  plan_memory(samples);
  rows_ = rows_to_simulate();
  const int ranks = options.grid.ranks();
  if (options.gpu && options.gpu->nccl) {
    const AlgorithmNames& names = options.algorithms;
    std::vector<bool> absent;
    for (int rank = 0; rank < ranks && has_equivalents(); ++rank) absent.push_back(!is_simulated(rank));
    nccl_ = std::make_unique<collectives::PhantomNccl>(
        cluster_,
        collectives::NcclModes{collectives::nccl_mode(names.all_gather),
                               collectives::nccl_mode(names.reduce_scatter),
                               collectives::nccl_mode(names.all_reduce)},
        absent);
  }
  options_ = steps_of(options, how.steps);
  options_.tiers.files.make = [this](runtime::EventLoop& loop, int rank) {
    return std::make_unique<offload::VirtualFiles>(loop, cluster_.disk(rank));
  };
  chosen_.resize(static_cast<std::size_t>(options.grid.g_inter));
  ranks_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    if (!is_simulated(rank)) continue;
    if (how_.goes_on && !how_.goes_on()) throw PredictionEnded();
    make_rank(rank, samples);
  }
}

PredictedJob::~PredictedJob() = default;

int PredictedJob::simulated(int rank) const {
  runtime::Position position = grid_.position(rank);
  position.row %= rows_;
  return grid_.rank(position);
}

std::vector<int> PredictedJob::others(int rank) const {
  std::vector<int> all;
  runtime::Position position = grid_.position(rank);
  for (position.row += rows_; position.row < options_.grid.g_data; position.row += rows_)
    all.push_back(grid_.rank(position));
  return all;
}

/// Rows communicate only through NCCL and agreements, unless the job sends messages between them.
int PredictedJob::rows_to_simulate() const {
  const Disturbances& disturbances = how_.disturbances;
  const bool alike = disturbances.jitter == 0 && disturbances.slow_ranks.empty() && disturbances.slow_nodes.empty();
  const bool meet = !options_.gpu || !options_.gpu->nccl || rows_send_;
  if (!how_.distinct_only || how_.trace || !alike || meet) return options_.grid.g_data;
  return distinct_rows(options_, nodes_of(options_));
}

/// Ranks of a column need the same memory.
void PredictedJob::plan_memory(const models::SampleSource& samples) {
  struct Needs {
    std::size_t device = 0, host = 0, files = 0;
  };
  std::vector<RankPlan> stages;
  for (int stage = 0; stage < options_.grid.g_inter; ++stage)
    stages.push_back(plan_rank(*architecture_, samples.sample_bytes(), options_, grid_.rank({.stage = stage})));
  std::vector<Needs> needs;
  for (const RankPlan& plan : stages) {
    rows_send_ = rows_send_ || plan.parameters.options.pulls || MatrixExchange::messages(plan) > 0;
    const Needs& need =
        needs.emplace_back(Needs{plan.memory.bytes(MemorySpace::device),
                                 plan.memory.bytes(MemorySpace::pinned) + plan.memory.bytes(MemorySpace::host),
                                 plan.memory.bytes(MemorySpace::nvme)});
    prediction_.device_bytes = std::max(prediction_.device_bytes, need.device);
    prediction_.host_bytes = std::max(prediction_.host_bytes, need.host);
    prediction_.file_bytes = std::max(prediction_.file_bytes, need.files);
    check_room("device memory", fmt::format("a rank of stage {}", plan.position.stage), need.device,
               profile_->device_memory, *profile_, plan.memory);
  }
  std::vector<Needs> nodes(static_cast<std::size_t>(cluster_.network().nodes()));
  for (int rank = 0; rank < options_.grid.ranks(); ++rank) {
    const auto stage = static_cast<std::size_t>(grid_.position(rank).stage);
    Needs& node = nodes[static_cast<std::size_t>(cluster_.network().node_of(rank))];
    node.host += needs[stage].host + (profile_->gpu ? 0 : needs[stage].device);
    node.files += needs[stage].files;
    prediction_.device_bytes_of_all += static_cast<double>(needs[stage].device);
    const std::string whose = fmt::format("node {}", cluster_.network().node_of(rank));
    check_room("memory", whose, node.host, profile_->host_memory, *profile_, stages[stage].memory);
    check_room("disk", whose, node.files, profile_->disk, *profile_, stages[stage].memory);
  }
}

/// Slow choices are identical for all ranks of a column, so its first rank makes them for all.
RankPlan PredictedJob::plan_as_before(int rank, const models::SampleBytes& sample) {
  const int stage = grid_.position(rank).stage;
  std::optional<TrainerOptions>& chosen = chosen_[static_cast<std::size_t>(stage)];
  RankPlan plan = plan_rank(*architecture_, sample, chosen ? *chosen : options_, rank);
  if (chosen) return plan;
  chosen = options_;
  chosen->recompute = plan.recompute;
  chosen->recompute_auto = false;
  chosen->saved_activations = plan.stage->capacity().saved;
  KeptAlgorithms& kept = chosen->kept_algorithms.emplace();
  for (std::size_t team = 0; team < kept.size(); ++team) {
    const collectives::PlanChoice& choice = plan.column->choices[team];
    kept[team] = {choice.all_gather, choice.reduce_scatter, choice.all_reduce};
  }
  return plan;
}

void PredictedJob::make_rank(int rank, const models::SampleSource& samples) {
  Ranks& made = ranks_[static_cast<std::size_t>(rank)];
  const Disturbances& disturbances = how_.disturbances;
  runtime::PhantomDeviceOptions device = device_;
  device.slowness = factor_of(disturbances.slow_ranks, rank);
  device.seed = disturbances.seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(rank);
  made.device = make_phantom_device(cluster_.time(), cluster_.cores(rank), cluster_.space(), device);
  RankPlan plan = plan_as_before(rank, samples.sample_bytes());
  runtime::EventLoop& loop = cluster_.loop(rank);
  runtime::Transport* transport = &cluster_.transport(rank);
  if (options_.gpu && options_.gpu->staged) {
    made.staged.push_back(std::make_unique<runtime::StagedTransport>(loop, *transport, *made.device));
    for (const runtime::StagedMessages& messages : plan.staged_messages) made.staged.front()->reserve(messages);
    transport = made.staged.front().get();
  }
  if (nccl_) {
    made.source = nccl_->source(loop, disturbances.no_overlap ? made.device.get() : nullptr);
    plan.column->source = made.source.get();
  }
  made.rank = std::make_unique<Rank>(loop, *transport, *made.device, Rank::Samples{samples}, std::move(plan),
                                     make_consensus(rank, *transport));
}

std::unique_ptr<Consensus> PredictedJob::make_consensus(int rank, runtime::Transport& transport) {
  if (!has_equivalents()) return nullptr;
  Ranks& of = ranks_[static_cast<std::size_t>(rank)];
  auto consensus = std::make_unique<EquivalentConsensus>(cluster_.loop(rank), transport);
  for (const int other : others(rank)) {
    runtime::Transport* port = &cluster_.transport(other);
    if (!of.staged.empty())
      port = of.staged
                 .emplace_back(std::make_unique<runtime::StagedTransport>(cluster_.loop(other), *port, *of.device))
                 .get();
    consensus->add(cluster_.loop(other), *port);
  }
  of.consensus = consensus.get();
  return consensus;
}

PredictedJob::Moment PredictedJob::moment(int rank) {
  const Ranks& of = ranks_[static_cast<std::size_t>(rank)];
  const runtime::Trace& trace = of.rank->context().trace;
  Moment moment{.time = trace.now(),
                .busy = of.device->busy(),
                .sent = cluster_.network().sent(rank),
                .link = of.device->host_link_bytes(),
                .files = of.rank->context().tiers.file_bytes()};
  for (int kind = 0; kind < runtime::span_kinds; ++kind)
    moment.seconds[static_cast<std::size_t>(kind)] = trace.seconds(static_cast<SpanKind>(kind));
  return moment;
}

RankTraffic PredictedJob::agreement(int rank) {
  const int equivalent = simulated(rank);
  const EquivalentConsensus& consensus = *ranks_[static_cast<std::size_t>(equivalent)].consensus;
  const std::vector<int> all = others(equivalent);
  const auto place = static_cast<std::size_t>(std::ranges::find(all, rank) - all.begin());
  RankTraffic traffic;
  const runtime::VirtualNetwork& network = cluster_.network();
  for (const int peer : rank == equivalent ? consensus.peers() : consensus.peers_of(place)) {
    const bool same = network.node_of(rank) == network.node_of(peer);
    (same ? traffic.intra : traffic.inter) += static_cast<double>(consensus.bytes());
    ++traffic.messages;
  }
  return traffic;
}

/// Traffic of a rank equals the traffic of its simulated equivalent, except for agreements, which use other peers.
RankTraffic PredictedJob::traffic_of(int rank) {
  const int equivalent = simulated(rank);
  const Ranks& of = ranks_[static_cast<std::size_t>(equivalent)];
  const Moment &before = of.before, &after = of.after;
  RankTraffic traffic{.intra = after.sent.bytes_intra - before.sent.bytes_intra,
                      .inter = after.sent.bytes_inter - before.sent.bytes_inter,
                      .nccl_intra = after.sent.ring_bytes_intra - before.sent.ring_bytes_intra,
                      .nccl_inter = after.sent.ring_bytes_inter - before.sent.ring_bytes_inter,
                      .to_device = after.link.to_device - before.link.to_device,
                      .to_host = after.link.to_host - before.link.to_host,
                      .read = static_cast<double>(after.files.read - before.files.read),
                      .written = static_cast<double>(after.files.written - before.files.written),
                      .messages = after.sent.messages - before.sent.messages};
  if (rank == equivalent) return traffic;
  const RankTraffic mine = agreement(rank), theirs = agreement(equivalent);
  traffic.intra += mine.intra - theirs.intra;
  traffic.inter += mine.inter - theirs.inter;
  traffic.messages += mine.messages - theirs.messages;
  return traffic;
}

StagePrediction PredictedJob::times_of(const Ranks& rank) const {
  const auto spent = [&](SpanKind kind) {
    const auto index = static_cast<std::size_t>(kind);
    return rank.after.seconds[index] - rank.before.seconds[index];
  };
  StagePrediction stage{.forward_seconds = spent(SpanKind::forward),
                        .backward_seconds = spent(SpanKind::backward),
                        .weights_seconds = spent(SpanKind::weights),
                        .optimizer_seconds = spent(SpanKind::optimizer),
                        .step_seconds = runtime::seconds(rank.after.time - rank.before.time)};
  const double busy = runtime::seconds(rank.after.busy - rank.before.busy);
  stage.other_seconds = std::max(0.0, busy - stage.known_seconds());
  return stage;
}

Prediction PredictedJob::run() {
  const int count = options_.grid.ranks();
  for (int r = 0; r < count; ++r) {
    if (!is_simulated(r)) continue;
    cluster_.loop(r).post([this, r] {
      Ranks& of = ranks_[static_cast<std::size_t>(r)];
      of.rank->start({.step =
                          [this, r](const StepResult& result) {
                            if (r == 0 && stepped_) stepped_(result);
                            Ranks& mine = ranks_[static_cast<std::size_t>(r)];
                            mine.before = std::exchange(mine.after, moment(r));
                          },
                      .done =
                          [this, r] {
                            cluster_.loop(r).stop();
                            for (const int other : others(r)) cluster_.loop(other).stop();
                          }});
    });
  }
  if (!cluster_.run(how_.goes_on)) throw PredictionEnded();

  Prediction prediction = std::move(prediction_);
  prediction.stages.resize(static_cast<std::size_t>(options_.grid.g_inter));
  double idle = 0;
  for (int r = 0; r < count; ++r) {
    const Ranks& of = ranks_[static_cast<std::size_t>(simulated(r))];
    const double step = runtime::seconds(of.after.time - of.before.time);
    const double busy = runtime::seconds(of.after.busy - of.before.busy);
    idle += step > 0 ? 1 - std::min(1.0, busy / step) : 0;
    prediction.messages += prediction.traffic.emplace_back(traffic_of(r)).messages;
    StagePrediction& stage = prediction.stages[static_cast<std::size_t>(grid_.position(r).stage)];
    stage.add(times_of(of), 1.0 / options_.grid.g_data);
    if (how_.trace) prediction.trace.push_back(of.rank->context().trace.chrome_events());
  }
  const Ranks& first = ranks_.front();
  prediction.step_seconds = runtime::seconds(first.after.time - first.before.time);
  prediction.bubble = idle / count;
  prediction.handlers = cluster_.handlers_run();
  if (prediction.step_seconds > 0) {
    const double batch = options_.batch_size;
    prediction.tokens_per_second = batch * architecture_->positions / prediction.step_seconds;
    prediction.model_flops_per_second = batch * architecture_->flops_per_sample() / prediction.step_seconds / count;
    if (const double peak = peak_flops(*profile_, options_.precision.compute); peak > 0)
      prediction.mfu = prediction.model_flops_per_second / peak;
  }
  return prediction;
}

Prediction predict(const models::Architecture& architecture, const models::SampleSource& samples,
                   const TrainerOptions& options, const runtime::MachineProfile& profile,
                   const PredictionOptions& how) {
  TrainerOptions usual = options;
  usual.rebalance_steps = 0;  // a prediction has too few steps
  const runtime::ProfileCosts device(profile);
  // With a GPU, all cores do host work. With a CPU device, host work has one thread.
  const runtime::ProfileCosts host(profile, runtime::ProfileCosts::Where::host);
  if (profile.gpu)
    return PredictedJob(architecture, samples, usual, profile, {.costs = &device, .host_costs = &host}, how).run();
  return PredictedJob(architecture, samples, usual, profile,
                      {.costs = &device,
                       .narrow_costs = profile.threads > 1 ? &host : nullptr,
                       .crowding = [&](const runtime::WorkCost& cost) { return device.crowding(cost); }},
                      how)
      .run();
}

double peak_flops(const runtime::MachineProfile& profile, runtime::DType dtype) {
  const auto of = [&](runtime::DType type) {
    const auto found = profile.peak_flops_per_second.find(type);
    return found == profile.peak_flops_per_second.end() ? 0.0 : found->second;
  };
  using runtime::DType;
  if (of(dtype) > 0 || dtype == DType::f32) return of(dtype);
  return of(dtype == DType::bf16 ? DType::f16 : DType::bf16);
}

}  // namespace ranvier::actors
