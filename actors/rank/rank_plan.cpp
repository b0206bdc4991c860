#include "actors/rank/rank_plan.hpp"

#include "actors/schedule/slice_balance.hpp"
#include "actors/schedule/slice_order.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using models::SavedActivations;

namespace {

/// Throws unless the layers compute in the planned precision.
void check_precision(const models::Architecture& architecture, const models::Precision& planned) {
  const models::Precision& made = architecture.precision;
  if (made == planned) return;
  fail(ErrorCode::usage,
       "layers of '{}' compute in {} with gradients in {}, but the plan has {} with gradients in {}; set "
       "Architecture::precision and TrainerOptions::precision to the layers' precision",
       architecture.name, to_string(made.compute), to_string(made.gradient), to_string(planned.compute),
       to_string(planned.gradient));
}

/// Effective schedule of the options.
Policy policy_of(const TrainerOptions& options) {
  if (!messages_decide(options.policy)) return options.policy;
  if (options.grid.g_inter == 1) return Policy::one_f_one_b;
  const bool waits = options.defer_weights || defers_weights(options.policy);
  return waits && options.deferred_limit != 0 ? Policy::zero_bubble : Policy::message_driven;
}

/// Throws if the schedule does not fit several model chunks per rank.
void check_chunks(const TrainerOptions& options) {
  const int chunks = options.chunks_per_rank, stages = options.grid.g_inter;
  if (chunks == 1) return;
  const std::string flag = fmt::format("`chunks_per_rank` {}", chunks);
  if (options.policy == Policy::zb_h1)
    fail(ErrorCode::usage,
         "{} does not work with `policy` zb-h1, which needs one model chunk per rank; use `policy` zero-bubble",
         flag);
  const int microbatches = microbatches_of(options), limit = options.pipeline_limit;
  if (options.policy == Policy::one_f_one_b && microbatches % stages != 0)
    fail(ErrorCode::usage,
         "{} with `policy` 1f1b and `g_inter` {} needs a multiple of {} microbatches per row, not {}; change "
         "`batch_size` or `microbatch_size`, or use `policy` message-driven",
         flag, stages, stages, microbatches);
  const int least = options.policy == Policy::one_f_one_b ? std::min(2 * stages, microbatches)
                    : options.policy == Policy::gpipe     ? 1
                                                          : std::min(stages, microbatches);
  if (limit > 0 && limit < least)
    fail(ErrorCode::usage,
         "`pipeline_limit` {} is too small for {} and `policy` {}; use {} or more, or remove `pipeline_limit`",
         limit, flag, to_string(options.policy), least);
  constexpr std::int64_t max_messages = std::int64_t{1} << 20;
  if (std::int64_t{microbatches} * chunks > max_messages)
    fail(ErrorCode::usage, "{} with {} microbatches per row needs more than {} messages; raise `microbatch_size`",
         flag, microbatches, max_messages);
}

/// Throws if messages in blocks would round averages (UnitSpec::averaged): small variances would become 0.
void check_averages(const std::vector<models::UnitSpec>& units, const collectives::WireTypes& wire) {
  for (const auto& [field, types] : {std::pair("gather_dtype", wire.gather), {"reduce_dtype", wire.reduce}}) {
    if (types.same()) continue;
    for (const models::UnitSpec& unit : units) {
      if (unit.averaged != 0)
        fail(ErrorCode::usage, "`{}` {} would round the running averages of '{}'; use `{}` same", field,
             to_string(std::max(types.intra_node, types.inter_node)), unit.name, field);
    }
  }
}

/// Throws if passes can read parameters in blocks or not, depending on which gather was the last one.
void check_secondary_gathers(const ColumnOptions& column) {
  const auto code = [&](collectives::TeamKind team) {
    return HopPipeline::code_of(column, team, &collectives::WireTypes::gather);
  };
  for (const bool trained : {false, true}) {
    if (column.sharding.of(trained).secondary_parameters && !code(collectives::TeamKind::column) &&
        code(collectives::TeamKind::group))
      fail(ErrorCode::usage,
           "`gather_dtype` int8 inside nodes with `shard` {} needs the same type between nodes; use `gather_dtype` "
           "int8",
           to_string(column.sharding.of(trained)));
  }
}

/// Blocks to which a refresh rounds parameters; none if messages have their type. Throws if training would round master
/// weights, or round parameters only if they are off the device.
std::optional<runtime::BlockCode> refresh_code(const TrainerOptions& options, const RankPlan& plan) {
  const collectives::Sharding sharding = options.shardings().trained;
  if (sharding.optimizer == sharding.parameters) return std::nullopt;
  const bool refreshes = sharding.optimizer > sharding.parameters;
  for (const collectives::Hop& hop : refreshes ? plan.flow.refresh : plan.flow.gather_forward) {
    const auto code = HopPipeline::code_of(*plan.column, hop.team, &collectives::WireTypes::gather);
    if (!code) continue;
    if (!separate_master(options.precision, options.tiers) && options.steps > 0)
      fail(ErrorCode::usage,
           "`gather_dtype` {} with `shard` {} needs separate master weights; use {}, or `parameter_tier` host or "
           "nvme",
           to_string(*code), to_string(sharding),
           options.tiers.master == runtime::DType::f32 ? "`precision` bf16 or fp16" : "`master_dtype` fp32");
    if (refreshes) return code;
  }
  return std::nullopt;
}

/// The stage's units with bucket sizes for reductions. Sizes refer to complete units, so that all rows of a column plan
/// the same.
std::vector<ChunkUnit> chunk_units(const models::StageSlices& stage, const UnitStates& states,
                                   const std::vector<std::optional<int>>& partners) {
  std::vector<std::size_t> fronts(states.all().size(), stage.layers());
  for (const models::StageSlices::UnitUse& use : stage.uses())
    fronts[use.unit] = std::min(fronts[use.unit], use.layer);
  std::vector<ChunkUnit> units;
  for (std::size_t u = 0; u < states.all().size(); ++u) {
    const UnitState& state = states.all()[u];
    ChunkUnit& unit = units.emplace_back();
    unit.front = fronts[u];
    unit.tied = partners[u].has_value();
    unit.number = state.global_index;
    for (std::size_t b = 0; state.trained() && b < state.cut.buckets(); ++b) {
      unit.bucket_bytes.push_back(state.cut.elements({0, state.elements}, b) *
                                  runtime::size_of(states.precision().gradient));
    }
  }
  return units;
}

/// Adds memory to the plan that its users allocate themselves, before the first step.
void plan_gpu_memory(const TrainerOptions::GpuMemory& gpu, const models::SampleBytes& sample, PlanContext& planner,
                     RankPlan& plan) {
  using runtime::Channel;
  using runtime::MemoryKind;
  using runtime::MemorySpace;
  using Direction = runtime::StagedMessages::Direction;
  const auto add = [&](MemoryKind kind, MemorySpace space, std::string name, std::size_t bytes, std::size_t slots) {
    if (bytes > 0 && slots > 0)
      plan.memory.add({.kind = kind,
                       .space = space,
                       .name = std::move(name),
                       .slot_bytes = bytes,
                       .slots = slots,
                       .elsewhere = true});
  };
  add(MemoryKind::workspace, MemorySpace::device, "scratch of the GPU's libraries", gpu.scratch_bytes, 1);
  const models::StageSlices& slices = *plan.stage;
  const int samples = slices.capacity().samples;
  plan.samples = Loader::plan(planner, sample);
  if (!gpu.staged) return;
  const auto staged = [&](std::string name, const runtime::StagedMessages& messages) {
    add(MemoryKind::messages, MemorySpace::pinned, std::move(name),
        runtime::StagedTransport::pinned_bytes(messages.bytes), messages.count);
    plan.staged_messages.push_back(messages);
  };
  // Messages of all slices reuse buffers that have the size of the largest message.
  runtime::StagedMessages inputs{.channel = Channel::activation, .direction = Direction::receive};
  runtime::StagedMessages outputs{.channel = Channel::activation, .direction = Direction::send};
  runtime::StagedMessages left{.channel = Channel::gradient, .direction = Direction::send};
  runtime::StagedMessages right{.channel = Channel::gradient, .direction = Direction::receive};
  const auto extend = [](runtime::StagedMessages& messages, std::size_t bytes, int count) {
    messages.bytes = std::max(messages.bytes, bytes);
    messages.count += static_cast<std::size_t>(count);
  };
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const models::Stage& stage = slices.slice(s);
    if (!stage.first()) extend(inputs, stage.input_bytes(samples), stage.slots());
    if (stage.sends_gradients()) extend(left, stage.input_bytes(samples), stage.gradient_buffers());
    if (!stage.last()) extend(outputs, stage.output_bytes(samples), stage.slots());
    if (stage.awaits_gradients()) extend(right, stage.output_bytes(samples), stage.slots());
  }
  for (const auto& [name, messages] :
       {std::pair("inputs arriving, staged", inputs), std::pair("gradients of inputs leaving, staged", left),
        std::pair("outputs leaving, staged", outputs), std::pair("gradients of outputs arriving, staged", right)}) {
    if (messages.count > 0) staged(name, messages);
  }
  const auto each = [&](const char* leaving, const char* arriving,
                        const std::vector<runtime::StagedMessages>& all) {
    for (const runtime::StagedMessages& messages : all) {
      staged(fmt::format("{}{}", messages.direction == Direction::send ? leaving : arriving,
                         messages.index ? fmt::format(" {}", *messages.index) : ""),
             messages);
    }
  };
  if (plan.parameters.pulls)
    each("pulled parameters leaving, staged", "pulled parameters arriving, staged, for place",
         ShardPulls::staged_messages(plan, plan.parameters.classes));
  each("tied gradients leaving, staged, of unit", "tied gradients arriving, staged, of unit",
       TiedUnits::staged_messages(*plan.states, plan.gradients.tied));
  each("updates of matrices leaving, staged", "updates of matrices arriving, staged",
       MatrixExchange::staged_messages(plan));
  // A collective chunk needs a send and a receive buffer; all teams may run collectives at the same time.
  std::size_t chunk_bytes = 0, chunks = 0;
  for (int k = 0; k < collectives::team_kinds; ++k) {
    const auto kind = static_cast<collectives::TeamKind>(k);
    if (plan.column->layout.team(kind).members.size() < 2) continue;
    const collectives::PlanChoice& choice = plan.column->choices[static_cast<std::size_t>(kind)];
    chunk_bytes = std::max(chunk_bytes, choice.chunk_bytes);
    chunks += 2 * static_cast<std::size_t>(choice.depth);
  }
  add(MemoryKind::messages, MemorySpace::pinned, "chunks of collectives, staged",
      chunk_bytes == 0 ? 0 : runtime::PinnedPool::buffer_bytes(chunk_bytes), chunks);
}

/// Plans memory for outputs of the last layer that evaluations and text samples need.
void plan_details(const models::Architecture& architecture, const TrainerOptions& options, int row_samples,
                  RankPlan& plan) {
  const std::size_t vocabulary = architecture.layers.back()->vocabulary();
  const bool scores = options.questions != nullptr, writes = options.sample.every > 0;
  if ((scores || writes) && vocabulary == 0)
    fail(ErrorCode::usage, "`{}` needs a model with token logits; remove the flag",
         scores ? "hellaswag" : "sample_every");
  const auto add = [&](const char* name, std::size_t bytes) {
    return plan.memory.add(
        {runtime::MemoryKind::workspace, runtime::MemorySpace::pinned, name, plan.stage->last() ? bytes : 0, 1});
  };
  const auto elements = static_cast<std::size_t>(row_samples) * static_cast<std::size_t>(architecture.positions);
  plan.answer_losses = add("losses of answers", scores ? elements * sizeof(double) : 0);
  plan.sample_logits = add("logits of a sample", writes ? vocabulary * sizeof(float) : 0);
}

/// Selects the rank that adds a unit's squared gradients to the norm. Tied unit: the first stage. Replicated shard: the
/// first row. Averages have no gradients.
void plan_squares(RankPlan& plan) {
  const auto& layout = plan.column->layout;
  const collectives::Scope reduced = plan.flow.reduced;
  bool first_copy = true;
  for (int row = 0; row < plan.position.row; ++row)
    first_copy = first_copy && layout.piece(reduced, row) != layout.piece(reduced);
  for (std::size_t u = 0; u < plan.states->all().size(); ++u) {
    const UnitState& unit = plan.states->all()[u];
    const auto& partner = plan.gradients.tied.options.partners[u];
    plan.gives_squares.push_back(unit.trained() && unit.spec->averaged == 0 && first_copy &&
                                 (!partner || plan.rank < *partner));
  }
}

}  // namespace

SliceMap slice_map(const TrainerOptions& options) {
  return {.stages = options.grid.g_inter, .chunks = options.chunks_per_rank};
}

std::vector<models::LayerRange> slice_layers(const models::Architecture& architecture, const SliceMap& map,
                                             const std::vector<int>& layers_per_stage) {
  check_slices(map, architecture.layers.size());
  if (!layers_per_stage.empty()) {
    const std::string flag = fmt::format("`layers_per_stage` {}", fmt::join(layers_per_stage, ","));
    if (map.chunks > 1 && layers_per_stage.size() != static_cast<std::size_t>(map.slices()))
      fail(ErrorCode::usage,
           "{} has {} numbers, but `g_inter` {} with `chunks_per_rank` {} has {} model chunks; use one number per "
           "chunk, from the front",
           flag, layers_per_stage.size(), map.stages, map.chunks, map.slices());
    if (layers_per_stage.size() != static_cast<std::size_t>(map.slices()))
      fail(ErrorCode::usage, "{} has {} numbers, but `g_inter` is {}; use one number per stage", flag,
           layers_per_stage.size(), map.stages);
    std::vector<models::LayerRange> ranges;
    std::size_t begin = 0;
    for (const int layers : layers_per_stage) {
      if (layers < 1) fail(ErrorCode::usage, "{} has a stage without layers; use 1 or more layers per stage", flag);
      ranges.push_back({begin, begin + static_cast<std::size_t>(layers)});
      begin = ranges.back().end;
    }
    if (begin != architecture.layers.size())
      fail(ErrorCode::usage,
           "{} adds up to {} layers, but the model has {}, embedding and head included; use numbers that add up to "
           "{}",
           flag, begin, architecture.layers.size(), architecture.layers.size());
    return ranges;
  }
  std::vector<double> costs;
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) costs.push_back(architecture.flops_per_sample(l));
  return balance_slices(costs, map);
}

std::unordered_map<std::string, std::vector<int>> stages_of_units(const models::Architecture& architecture,
                                                                  const std::vector<models::LayerRange>& slices,
                                                                  const SliceMap& map) {
  std::unordered_map<std::string, std::vector<int>> stages_of;
  const std::vector<std::size_t> stage_of = stages_of_layers(slices, map);
  for (int stage = 0; stage < map.stages; ++stage) {
    for (std::size_t l = 0; l < stage_of.size(); ++l) {
      if (stage_of[l] != static_cast<std::size_t>(stage)) continue;
      for (const models::UnitSpec& unit : architecture.layers[l]->units()) {
        std::vector<int>& known = stages_of[unit.name];
        if (known.empty() || known.back() != stage) known.push_back(stage);
      }
    }
  }
  return stages_of;
}

bool reads_through_staging(const UnitStates& states) {
  return std::ranges::any_of(states.all(), [](const UnitState& unit) {
    return !unit.trained() || unit.master.dtype != runtime::DType::f32;
  });
}

bool every_step_counts(const TrainerOptions& options) {
  return options.clip <= 0 && !options.loss_scale.dynamic &&
         options.bad_steps.action == BadStepOptions::Action::stop;
}

int microbatches_of(const TrainerOptions& options) {
  const int row_samples = options.batch_size / options.grid.g_data;
  const int microbatch = std::min(options.microbatch_size, row_samples);
  return runtime::ceil_divide(row_samples, microbatch);
}

int deferred_slots(const TrainerOptions& options, int stage) {
  if (options.grid.g_inter == 1 || options.steps == 0) return 0;
  if (!options.defer_weights && !defers_weights(options.policy)) return 0;
  const bool recomputes = options.recompute > 0 || options.recompute_auto;
  return options.deferred_limit.value_or(recomputes ? 1 : options.chunks_per_rank > 1 ? stage + 2 : stage + 1);
}

ColumnShape column_shape(const TrainerOptions& options) {
  std::vector<int> node_of = options.node_of;
  node_of.resize(static_cast<std::size_t>(options.grid.ranks()), node_of.empty() ? 0 : node_of.back());
  ColumnShape shape{collectives::common_rows(node_of, options.grid.g_inter, options.grid.g_data),
                    options.group_size};
  if (shape.group_size == 0) shape.group_size = collectives::common_node_size(shape.node_of_row);
  return shape;
}

namespace {

RankPlan plan_rank(const models::Architecture& architecture, const models::SampleBytes& sample,
                   const TrainerOptions& options, SavedActivations saved, int rank) {
  if (const auto problem = runtime::batch_problem(options.batch_size, options.grid.g_data))
    fail(ErrorCode::usage, "{}", *problem);
  check_precision(architecture, options.precision);
  if (options.defer_weights && options.policy != Policy::message_driven && !defers_weights(options.policy)) {
    fail(ErrorCode::usage,
         "`policy` {} cannot defer weight gradients (`defer_weights`); use `policy` zero-bubble or zb-h1",
         to_string(options.policy));
  }
  const runtime::Grid grid(options.grid, options.grid.ranks());
  const SliceMap map = slice_map(options);
  const auto slices = slice_layers(architecture, map, options.layers_per_stage);
  check_chunks(options);
  const auto units = architecture.units();
  check_averages(units, options.wire);

  RankPlan plan;
  plan.options = options;
  plan.architecture = &architecture;
  plan.rank = rank;
  plan.position = grid.position(rank);
  for (int chunk = 0; chunk < map.chunks; ++chunk)
    plan.layers.push_back(slices[static_cast<std::size_t>(map.slice_of(plan.position.stage, chunk))]);
  const std::vector<int> pipeline = grid.pipeline(plan.position.row);  // ranks of this row, by stage

  const int row_samples = options.batch_size / options.grid.g_data;
  const int microbatch = std::min(options.microbatch_size, row_samples);
  plan.policy = policy_of(options);
  plan.slots = slice_slots(plan.policy, plan.position.stage, map.stages, map.chunks, microbatches_of(options),
                           options.pipeline_limit);

  const bool checkpoints_leave = options.tiers.activations != TierKind::device;
  if (checkpoints_leave && options.recompute == 0 && !options.recompute_auto) {
    fail(ErrorCode::usage, "`activation_tier` {} needs recomputation; add `recompute` auto",
         offload::to_string(options.tiers.activations));
  }
  const TierOptions& tiers = options.tiers;
  if (tiers.commit == Commit::flip) {
    if (tiers.optimizer == TierKind::device) {
      fail(ErrorCode::usage,
           "`optimizer_commit` flip needs optimizer states off the device; add `optimizer_tier` host or nvme");
    }
    if (!separate_master(options.precision, tiers)) {
      fail(ErrorCode::usage,
           "`optimizer_commit` flip needs separate master weights; use {}, or `parameter_tier` host "
           "or nvme",
           tiers.master == runtime::DType::f32 ? "`precision` bf16 or fp16" : "`master_dtype` fp32");
    }
  }
  if (tiers.rule == UpdateRule::muon && tiers.commit == Commit::flip)
    fail(ErrorCode::usage,
         "`optimizer` muon does not work with `optimizer_commit` flip; use `optimizer_commit` wait");
  if (tiers.rule == UpdateRule::muon && tiers.step == StepLocation::host)
    fail(ErrorCode::usage,
         "`optimizer` muon does not work with `optimizer_step` host; use `optimizer_step` device");
  models::StageOptions stage{.layers = {},
                             .capacity = {microbatch, architecture.positions, options.threads, saved},
                             .precision = options.precision,
                             .checkpoint_places = checkpoints_leave ? options.tiers.checkpoint_places : 0,
                             .deferred_slots = deferred_slots(options, plan.position.stage),
                             .sample = sample};
  std::vector<models::StageOptions> of_slices;
  for (std::size_t s = 0; s < plan.layers.size(); ++s) {
    models::StageOptions& slice = of_slices.emplace_back(stage);
    slice.layers = plan.layers[s];
    slice.slots = plan.slots[s];
    slice.gradient_buffers = std::min(2, slice.slots);
  }
  if (options.recompute_auto) {
    // All rows need the same choice, but saved activations can depend on the number of threads. The slice with the most
    // layers decides.
    models::StageOptions alike = *std::ranges::max_element(
        of_slices, {}, [](const models::StageOptions& slice) { return slice.layers.end - slice.layers.begin; });
    alike.capacity.threads = 1;
    alike.capacity.saved = options.saved_activations.value_or(SavedActivations::few);
    plan.recompute = models::choose_recompute(architecture, alike);
  } else {
    plan.recompute = options.recompute;
  }
  for (models::StageOptions& slice : of_slices) slice.recompute = plan.recompute;

  plan.stage = std::make_unique<models::StageSlices>(architecture, std::move(of_slices), plan.memory);

  const ColumnShape shape = column_shape(options);
  plan.column = std::make_unique<ColumnOptions>(
      ColumnOptions{.layout = collectives::ShardLayout(shape.node_of_row, shape.group_size, plan.position.row),
                    .sharding = options.shardings(),
                    .ranks = grid.column(plan.position.stage),
                    .wire = options.wire,
                    .packs = options.gpu && options.gpu->nccl});
  plan.column->choices =
      choose_algorithms(shape.node_of_row, shape.group_size,
                        {.names = options.algorithms,
                         .kept = options.kept_algorithms,
                         .links = options.links,
                         .largest = largest_units(architecture, options.grid.g_data, options.tiers, options.wire),
                         .precision = options.precision,
                         .sharding = options.shardings(),
                         .wire = options.wire});
  plan.flow = plan.column->layout.flow(options.shardings().trained, options.wire);
  plan.frozen_flow = plan.column->layout.flow(options.shardings().frozen, options.wire);
  check_secondary_gathers(*plan.column);
  plan.refresh_code = refresh_code(options, plan);
  PlanContext planner{plan, options.tiers, plan.memory, plan.tiers};
  plan.states = std::make_unique<UnitStates>(planner, units, options.steps > 0);
  plan.parameters = ParameterStore::plan(
      planner, {.prefetch = options.prefetch, .pulls = messages_decide(plan.policy), .reuse = options.reuse});
  if (plan.parameters.pulls && !options.wire.gather.same())
    fail(
        ErrorCode::usage,
        "`gather_dtype` {} does not work with `policy` {} and sharded parameters, which are sent unit by unit; use "
        "`policy` 1f1b",
        to_string(std::max(options.wire.gather.intra_node, options.wire.gather.inter_node)),
        to_string(plan.policy));
  plan.offloaded_parameters = OffloadedParameters::plan(planner, options.prefetch, plan.parameters.pulls);
  plan.offloaded_gradients = OffloadedGradients::plan(planner);
  std::vector<std::optional<int>> partners;
  const auto stages_of = stages_of_units(architecture, slices, map);
  for (const UnitState& unit : plan.states->all()) {
    std::optional<int>& partner = partners.emplace_back();
    if (!unit.trained()) continue;
    std::size_t uses = unit.gradients.size();
    for (const int s : stages_of.at(unit.spec->name)) {
      if (s == plan.position.stage) continue;
      ++uses;
      partner = pipeline[static_cast<std::size_t>(s)];
    }
    if (uses > 2) {
      fail(ErrorCode::usage, "unit '{}' is shared by more than two layers; share it between two", unit.spec->name);
    }
  }
  plan.chunks = chunk_schedule(chunk_units(*plan.stage, *plan.states, partners),
                               {options.tiers.chunk_buckets, options.tiers.bundle_bytes});
  GradientSync::Options gradients;
  gradients.tied.partners = std::move(partners);
  gradients.every_step_counts = every_step_counts(options);
  gradients.prefetch = options.prefetch;
  plan.gradients = GradientSync::plan(planner, gradients);
  plan.optimizer = Optimizer::plan(planner, every_step_counts(options));
  if (options.check_every > 0 && options.steps > 0) {
    std::vector<std::vector<int>> of_units;
    for (const models::UnitSpec& unit : units) of_units.push_back(stages_of.at(unit.name));
    plan.replicas = ReplicaCheck::plan(planner,
                                       replica_sets(units, of_units,
                                                    {.grid = options.grid,
                                                     .layout = &plan.column->layout,
                                                     .sharding = options.shardings(),
                                                     .precision = options.precision,
                                                     .tiers = tiers,
                                                     .wire = options.wire}),
                                       rank);
  }
  if (options.checkpoint_staging > 0 && options.steps > 0) {
    Snapshot::Options snapshot{.staging_bytes = options.checkpoint_staging};
    for (const UnitState& unit : plan.states->all())
      snapshot.writes.push_back(stages_of.at(unit.spec->name).front() == plan.position.stage);
    plan.snapshot = Snapshot::plan(planner, snapshot, plan.optimizer);
  }
  for (std::size_t s = 0; s < plan.stage->size(); ++s)
    plan.checkpoints.push_back(ActivationCheckpoints::plan(planner, plan.stage->slice(s)));
  plan.passes = StageActor::plan(planner, pipeline, map, plan.position.stage, plan.policy);
  plan_squares(plan);
  plan_details(architecture, options, row_samples, plan);
  if (reads_through_staging(*plan.states))
    plan.memory.add({.kind = runtime::MemoryKind::workspace,
                     .space = runtime::MemorySpace::pinned,
                     .name = "weights on their way to files",
                     .slot_bytes = WeightStaging::bytes,
                     .slots = 1,
                     .elsewhere = true});
  plan.tiers.finish(options.tiers.files, plan.memory);
  if (options.gpu) plan_gpu_memory(*options.gpu, sample, planner, plan);
  return plan;
}

}  // namespace

RankPlan plan_rank(const models::Architecture& architecture, const models::SampleBytes& sample,
                   const TrainerOptions& options, int rank) {
  if (options.saved_activations) return plan_rank(architecture, sample, options, *options.saved_activations, rank);
  if (options.device_bytes && options.steps > 0) {
    RankPlan plan = plan_rank(architecture, sample, options, SavedActivations::all, rank);
    if (plan.memory.bytes(runtime::MemorySpace::device) <= *options.device_bytes) return plan;
  }
  return plan_rank(architecture, sample, options, SavedActivations::few, rank);
}

}  // namespace ranvier::actors
