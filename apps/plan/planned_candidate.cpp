#include "apps/plan/planned_candidate.hpp"

#include "actors/schedule/slice_order.hpp"
#include "actors/states/sharded_unit.hpp"
#include "apps/files/train_job.hpp"
#include "apps/memory/job_plan.hpp"
#include "apps/memory/saved_column.hpp"
#include "apps/program/device_flag.hpp"
#include "collectives/plans/link_file.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/cuda_build.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <typeinfo>
#include <utility>

namespace ranvier::apps {

using actors::RankPlan;
using actors::TrainerOptions;
using runtime::format_bytes;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

constexpr int default_node_size = 8;

int number_of(const GivenFlag& flag) {
  int number = 0;
  if (const auto wanted = whole(number, 1, 1 << 20).read(flag.value))
    reject("--{} is invalid: {}; use {}", flag.name, flag.value, *wanted);
  return number;
}

/// Largest number of ranks on one node.
int largest_node(const std::vector<int>& nodes) {
  std::map<int, int> ranks;
  int most = 1;
  for (const int node : nodes) most = std::max(most, ++ranks[node]);
  return most;
}

/// Removes a flag from the list and returns it.
std::optional<GivenFlag> taken(std::vector<GivenFlag>& flags, std::string_view name) {
  const auto found = std::ranges::find(flags, name, &GivenFlag::name);
  if (found == flags.end()) return {};
  GivenFlag flag = *found;
  flags.erase(found);
  return flag;
}

/// Key of a layer's declared memory, parameters and phases: layers with equal keys behave identically.
std::string class_of(const models::Layer& layer, int positions) {
  std::string text = fmt::format("{} {} {}", typeid(layer).name(), layer.output_elements(positions),
                                 layer.flops_per_sample(positions));
  for (const int samples : {1, 3}) {
    const models::LayerMemory memory = layer.memory({samples, positions, 1});
    text += fmt::format(" {} {} {}", memory.saved, memory.deferred, memory.workspace);
  }
  for (const models::UnitSpec& unit : layer.units()) {
    text += fmt::format("; {} {}", unit.trained, unit.averaged);
    for (const models::ParameterSpec& parameter : unit.parameters)
      text += fmt::format(" {}/{}", parameter.elements(), parameter.stored_elements);
  }
  const auto parts = layer.parts();
  return text +
         fmt::format("; {} {} {}", parts.forward.size(), parts.backward_input.size(), parts.backward_weight.size());
}

/// Optimizer states on the device, by unit.
struct KeptStates {
  std::size_t units = 0;  ///< number, over all stages
  std::size_t bytes = 0;  ///< maximum over stages
  bool all = true;        ///< no trained unit's states are offloaded
};

KeptStates kept_states(const models::Architecture& architecture, const PlannedCandidate& trial) {
  const TrainerOptions& trainer = trial.trainer;
  const actors::UnitShardings shardings = trainer.shardings();
  const int rows = trainer.grid.g_data, group_size = actors::column_shape(trainer).group_size;
  KeptStates kept;
  for (const RankPlan& plan : trial.plans.distinct) {
    const auto units = actors::sharded_units(architecture, plan.layers, rows, trainer.tiers, trainer.wire);
    const auto tiers =
        actors::optimizer_tiers(units, shardings, rows, group_size, trainer.precision, trainer.tiers);
    std::size_t bytes = 0;
    for (std::size_t u = 0; u < units.size(); ++u) {
      const bool is_kept = tiers[u] == actors::TierKind::device;
      kept.all = kept.all && (is_kept || !units[u].trained);
      if (!is_kept) continue;
      ++kept.units;
      bytes += actors::state_bytes(std::span(units).subspan(u, 1), shardings, rows, group_size, trainer.precision,
                                   trainer.tiers)
                   .optimizer;
    }
    kept.bytes = std::max(kept.bytes, bytes);
  }
  return kept;
}

}  // namespace

Planner::Planner(std::vector<GivenFlag> given, const runtime::MachineProfile& profile,
                 std::optional<CurrentRanks> here, const JobBuilder& build)
    : given_(std::move(given)), profile_(&profile), here_(std::move(here)) {
  const auto world = taken(given_, "world");
  if (!world && !here_) reject("--world is missing; add the number of ranks, such as --world 64");
  world_ = here_ ? static_cast<int>(here_->nodes.size()) : number_of(*world);
  std::erase_if(given_, [](const GivenFlag& flag) { return traits_of(flag.name).plan == PlanRole::request; });
  const std::string* const batch = value_of(given_, "batch-size");
  if (batch == nullptr)
    reject("--batch-size is missing; add the samples per step of all plans, such as --batch-size {}", 8 * world_);
  batch_size_ = number_of({"batch-size", *batch});
  const auto node_size = taken(given_, "node-size");
  const bool counted = node_size && node_size->value != "0";  // instead of the actual nodes
  if (counted && here_) here_->nodes.clear();
  if (counted)
    node_size_ = number_of(*node_size);
  else
    node_size_ = here_ ? largest_node(here_->nodes) : std::min(default_node_size, world_);
  const auto device = taken(given_, "device");
  if (device && device->value.starts_with("cuda") != profile.gpu)
    reject("--device {} does not match profile {}, which is for {}; remove --device", device->value, profile.name,
           profile.gpu ? "GPUs" : "CPUs");
  std::erase_if(given_, [&](const GivenFlag& flag) {
    const bool on_gpu = traits_of(flag.name).plan == PlanRole::gpu;
    if (on_gpu && profile.gpu) device_flags_.push_back(flag);
    return on_gpu;
  });
  device_ = asked_options(device_flags_).options.device;
  if (profile.gpu) device_.device = DeviceFlag::cuda;  // also if this build lacks it
  if (!is_given("precision")) given_.push_back({"precision", std::string(to_string(default_precision(profile)))});

  asked_ = asked_options(given_);
  asked_.dry_run = true;
  // The model depends neither on the grid nor on tiers, so a job of one rank is built.
  AskedOptions one_rank = asked_;
  one_rank.options.trainer.grid = {.g_inter = 1, .g_data = 1};
  one_rank.options.trainer.group_size = 0;
  one_rank.options.trainer.tiers = {.rule = asked_.options.trainer.tiers.rule};
  resolve(one_rank, 1);
  TrainOptions& options = one_rank.options;
  options.device.device = device_.device;
  options.data.data.clear();  // planning reads no data
  job_ = build ? build(options) : make_job(options);
  layers_ = models::layers_of(options.model.sizes);
  if (const auto& layers = layers_per_stage(); !layers.empty() && !is_given("g-inter")) {
    const auto chunks = static_cast<std::size_t>(chunks_per_rank());
    if (layers.size() % chunks != 0)
      reject(
          "--layers-per-stage {} has {} numbers, not a multiple of --chunks-per-rank {}; use --g-inter times "
          "--chunks-per-rank numbers",
          fmt::join(layers, ","), layers.size(), chunks);
    given_.push_back({"g-inter", std::to_string(layers.size() / chunks)});
  }
  classify_layers();
  may_save_all_ = options.trainer.saved_activations.value_or(profile.gpu ? models::SavedActivations::all
                                                                         : models::SavedActivations::few) ==
                  models::SavedActivations::all;

  device_bytes_ = profile.device_memory;
  if (profile.gpu) device_bytes_ -= std::min(device_bytes_, runtime::cuda_reserve_bytes);
  if (const auto& limit = options.device.memory_bytes)
    device_bytes_ = device_bytes_ == 0 ? *limit : std::min(device_bytes_, *limit);
}

SpaceOptions Planner::space() const {
  SpaceOptions options{.world = world_,
                       .node_size = node_size_,
                       .layers = layers_,
                       .slices = static_cast<int>(job_.architecture.layers.size()),
                       .batch_size = batch_size_,
                       .apart = profile_->gpu,
                       .files = is_given("nvme") && profile_->disk > 0,
                       .nccl = profile_->gpu && device_.collectives != CollectiveBackend::plans,
                       .start = here_ ? "mpirun -n" : "--world"};
  for (const GivenFlag& flag : given_) {
    options.given[flag.name] = flag.value;
    if (const auto fixed = traits_of(flag.name).fixes; !fixed.empty())
      options.given.try_emplace(std::string(fixed), flag.value);
  }
  return options;
}

bool Planner::is_given(std::string_view flag) const { return value_of(given_, flag) != nullptr; }

std::vector<GivenFlag> Planner::flags_of(const Candidate& candidate) const {
  std::vector<GivenFlag> flags = candidate.flags();
  std::erase_if(flags, [&](const GivenFlag& flag) {
    return is_given(flag.name) &&
           traits_of(flag.name).plan != PlanRole::sized;  // sized flags respect the given value
  });
  return flags;
}

TrainOptions Planner::options_of(const Candidate& candidate) const {
  trial_ = asked_;
  TrainOptions& options = trial_.options;
  for (const GivenFlag& flag : flags_of(candidate)) {
    table_.assign(flag);
    options.given.push_back(flag.name);
  }
  if (!candidate.may_have_files()) options.trainer.tiers.files.directories.clear();
  if (!here_) trial_.world = world_;
  if (!here_ || here_->nodes.empty()) options.shard.node_size = node_size_;
  resolve(trial_, world_);
  options.device.device = device_.device;
  options.device.point_to_point = device_.point_to_point;
  options.device.collectives = device_.collectives;
  return options;
}

TrainerOptions Planner::trainer_of(const TrainOptions& options) const {
  TrainerOptions trainer = options.trainer;
  if (here_ && options.data.eval_only) trainer.steps = 0;  // planned for its memory only
  trainer.questions = job_.questions;
  trainer.sample = text_samples(options, job_);
  const int threads = here_ ? here_->threads : profile_->threads;
  trainer.threads = profile_->gpu ? 1 : options.device.threads > 0 ? options.device.threads : threads;
  trainer.gpu = gpu_memory(options, device_.point_to_point == PointToPoint::direct);
  if (profile_->gpu && device_bytes_ > 0) trainer.device_bytes = device_bytes_;
  trainer.node_of = nodes_of(options, here_ ? std::span<const int>(here_->nodes) : std::span<const int>());
  collectives::require_classes(profile_->links, trainer.node_of, "profile " + profile_->name);
  // A run with --plan auto chooses algorithms by --links alone.
  if (options.shard.links.empty() && !here_) trainer.links = profile_->links;
  return trainer;
}

void Planner::classify_layers() {
  std::map<std::string, int> classes;
  for (const auto& layer : job_.architecture.layers)
    layer_class_.push_back(
        classes.try_emplace(class_of(*layer, job_.architecture.positions), static_cast<int>(classes.size()))
            .first->second);
}

std::string Planner::slice_class(const std::vector<models::LayerRange>& slices, std::size_t slice) const {
  const models::Architecture& architecture = job_.architecture;
  const models::LayerRange& layers = slices[slice];
  const std::size_t trained =
      std::clamp(architecture.first_trained_layer(), layers.begin, layers.end) - layers.begin;
  const bool before = architecture.first_trained_layer() < layers.begin;
  std::string text = fmt::format("{} {} {} {}:", slice == 0, slice + 1 == slices.size(), trained, before);
  for (std::size_t l = layers.begin; l < layers.end; ++l) text += fmt::format(" {}", layer_class_[l]);
  return text;
}

/// Key of the choice of collective algorithms, without values common to all candidates.
std::string Planner::column_class(const TrainerOptions& trainer) const {
  const actors::UnitShardings shardings = trainer.shardings();
  const actors::AlgorithmNames& names = trainer.algorithms;
  return fmt::format("{} {} {} {} {} {} {} {}", trainer.grid.g_inter, trainer.grid.g_data, trainer.group_size,
                     to_string(shardings.trained), to_string(shardings.frozen), names.all_gather,
                     names.reduce_scatter, names.all_reduce);
}

StagePlans Planner::plans_of(const TrainerOptions& given) const {
  TrainerOptions trainer = given;
  const auto [chosen, is_first] = chosen_.try_emplace(column_class(trainer));
  if (!is_first) trainer.kept_algorithms = chosen->second;
  const actors::SliceMap map = actors::slice_map(trainer);
  const auto slices = actors::slice_layers(job_.architecture, map, trainer.layers_per_stage);
  // Stages with tied units exchange their gradients, so each of them is planned separately.
  const auto stages_of = actors::stages_of_units(job_.architecture, slices, map);
  std::vector<bool> ties(static_cast<std::size_t>(map.stages));
  for (const auto& [unit, users] : stages_of)
    for (const int user : users)
      ties[static_cast<std::size_t>(user)] = ties[static_cast<std::size_t>(user)] || users.size() > 1;
  StagePlans plans;
  std::map<std::string, std::size_t> known;
  for (int s = 0; s < map.stages; ++s) {
    std::string key = fmt::format("{} wait ", actors::deferred_slots(trainer, s));
    if (ties[static_cast<std::size_t>(s)]) key += fmt::format("stage {}", s);
    for (int chunk = 0; chunk < map.chunks && !ties[static_cast<std::size_t>(s)]; ++chunk)
      key += slice_class(slices, static_cast<std::size_t>(map.slice_of(s, chunk)));
    if (map.chunks > 1)
      key += fmt::format(" slots {}",
                         fmt::join(actors::slice_slots(trainer.policy, s, map.stages, map.chunks,
                                                       actors::microbatches_of(trainer), trainer.pipeline_limit),
                                   "+"));
    const auto [place, is_new] = known.try_emplace(key, plans.distinct.size());
    if (is_new)
      plans.distinct.push_back(actors::plan_rank(job_.architecture, job_.sample, trainer, s * trainer.grid.g_data));
    if (!trainer.kept_algorithms) chosen->second = names_of(plans.distinct.front().column->choices);
    trainer.kept_algorithms = chosen->second;
    plans.of_stage.push_back(place->second);
  }
  return plans;
}

/// Plans all stages, and compares their memory with the available memory.
PlannedCandidate Planner::judged(TrainerOptions trainer) const {
  PlannedCandidate trial{.trainer = std::move(trainer)};
  trial.plans = plans_of(trial.trainer);
  std::vector<const RankPlan*> stages;
  for (const std::size_t distinct : trial.plans.of_stage) stages.push_back(&trial.plans.distinct[distinct]);
  trial.needs = memory_needs(stages, trial.trainer, !profile_->gpu);
  trial.saved_activations = saved_activations_text(stages);
  const auto compare = [&](const char* what, const char* where, std::size_t needed, std::size_t there) {
    if (there == 0) return;  // unknown
    const double share = static_cast<double>(needed) / static_cast<double>(there);
    if (share <= trial.fullness) return;
    trial.fullness = share;
    if (needed <= there) return;
    trial.lacking = what;
    trial.lacks =
        fmt::format("{} is too small: {} needed, {} available", where, format_bytes(needed), format_bytes(there));
  };
  compare("device", "a rank's device memory", trial.needs.device, device_bytes_);
  compare("host", "a node's memory", trial.needs.host, profile_->host_memory);
  compare("disk", "a node's disk", trial.needs.disk, profile_->disk);
  const runtime::MemoryPlan& memory = stages[trial.needs.stage]->memory;
  for (int k = 0; k < runtime::memory_kinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    const std::size_t device = memory.bytes(MemorySpace::device, kind);
    trial.kinds.device[static_cast<std::size_t>(k)] = device;
    trial.kinds.elsewhere[static_cast<std::size_t>(k)] = memory.bytes(kind) - device;
  }
  return trial;
}

PlannedCandidate Planner::plan(const Candidate& candidate) const {
  const TrainOptions options = options_of(candidate);
  PlannedCandidate trial = judged(trainer_of(options));
  while (!trial.fits() && !options.shard.prefetch && trial.trainer.prefetch > 0) {
    const std::size_t before = trial.needs.device;
    TrainerOptions fewer = std::move(trial.trainer);
    --fewer.prefetch;
    trial = judged(std::move(fewer));
    if (trial.needs.device == before) break;  // nothing is gathered ahead
  }
  return trial;
}

std::optional<std::pair<Candidate, PlannedCandidate>> Planner::with_budget(Candidate candidate,
                                                                           const PlannedCandidate& trial) const {
  constexpr std::size_t MiB = std::size_t{1} << 20;
  constexpr int max_plans = 8;  // the first may be too large, since large arrays take complete pages
  const bool offloads = trial.trainer.tiers.optimizer != actors::TierKind::device;
  if (is_given("optimizer-budget") || !offloads || device_bytes_ <= trial.needs.device) return {};
  std::size_t budget = (device_bytes_ - trial.needs.device) / MiB;
  for (int n = 0; n < max_plans && budget > 0; ++n) {
    TrainerOptions trainer = trial.trainer;
    trainer.tiers.optimizer_budget = budget * MiB;
    PlannedCandidate filled = judged(std::move(trainer));
    if (!filled.fits() || filled.saved_activations != trial.saved_activations) {
      const std::size_t over = filled.needs.device - std::min(filled.needs.device, device_bytes_);
      budget -= std::min(budget, std::max(runtime::ceil_divide(over, MiB), std::size_t{1}));
      continue;
    }
    const KeptStates kept = kept_states(job_.architecture, filled);
    if (kept.units == 0 || (kept.all && candidate.offload == "myelin")) return {};
    budget = runtime::ceil_divide(kept.bytes, MiB);
    filled.trainer.tiers.optimizer_budget = budget * MiB;  // at most the first, with the same units
    candidate.optimizer_budget = fmt::format("{}MiB", budget);
    return std::pair(std::move(candidate), std::move(filled));
  }
  return {};
}

Candidate Planner::smallest_like(Candidate candidate) const {
  if (!is_given("microbatch-size")) candidate.microbatch_size = 1;
  if (!candidate.recompute.empty()) candidate.recompute = "auto";
  if (!candidate.policy.empty()) candidate.policy = "1f1b";
  if (!candidate.algorithms.empty()) candidate.algorithms = "auto";
  return candidate;
}

std::vector<GivenFlag> Planner::config_of(const Candidate& candidate, const PlannedCandidate& trial) const {
  std::vector<GivenFlag> flags = flags_of(candidate);
  for (const GivenFlag& flag : given_)
    if (value_of(flags, flag.name) == nullptr) flags.push_back(flag);
  if (!here_ || here_->nodes.empty()) flags.push_back({"node-size", std::to_string(node_size_)});
  if (!candidate.may_have_files()) taken(flags, "nvme");
  flags.insert(flags.end(), device_flags_.begin(), device_flags_.end());
  if (profile_->gpu && !here_) flags.push_back({"device", "cuda"});
  if (!profile_->gpu && !here_ && !is_given("threads"))
    flags.push_back({"threads", std::to_string(profile_->threads)});
  if (!is_given("prefetch")) flags.push_back({"prefetch", std::to_string(trial.trainer.prefetch)});
  // Order of the help text.
  std::vector<GivenFlag> ordered;
  for (const ResolvedOption& option : default_flags())
    if (auto flag = taken(flags, option.name)) ordered.push_back(std::move(*flag));
  return ordered;
}

}  // namespace ranvier::apps
