#include "tests/actors/same_bits.hpp"

#include "models/core/initialize.hpp"
#include "runtime/base/arithmetic.hpp"
#include "tests/collectives/all_shardings.hpp"
#include "tests/doubles/simulated_tier.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

using actors::Policy;
using actors::TierKind;
using actors::TrainerOptions;
using actors::UpdateRule;
using runtime::DType;

void check_same_bits(const JobResult& a, const JobResult& b) {
  REQUIRE(a.steps.size() == b.steps.size());
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    CHECK(a.steps[s].loss == b.steps[s].loss);
    CHECK(a.steps[s].skipped == b.steps[s].skipped);
    CHECK((a.steps[s].gradient_norm == b.steps[s].gradient_norm || a.steps[s].skipped));
  }
  CHECK(a.evaluations == b.evaluations);
  CHECK(a.correct == b.correct);
  CHECK(a.accuracies == b.accuracies);
  CHECK(a.texts == b.texts);
  CHECK(a.weights == b.weights);
}

models::Precision draw_precision(Draw& draw) {
  const DType compute = draw.of(DType::f32, DType::bf16, DType::f16);
  return {compute, draw.of(DType::f32, compute)};
}

collectives::Sharding draw_sharding(Draw& draw) {
  if (draw(0, 1) == 0) {
    const auto named = collectives::named_shardings();
    return named[static_cast<std::size_t>(draw(0, static_cast<int>(named.size()) - 1))].sharding;
  }
  const auto all = all_shardings();
  return all[static_cast<std::size_t>(draw(0, static_cast<int>(all.size()) - 1))];
}

void draw_groups(TrainerOptions& options, Draw& draw) {
  const int rows = options.grid.g_data;
  do {
    options.group_size = draw.of(2, 3, draw(1, rows));
  } while (rows % options.group_size != 0);
  for (int rank = 0; rank < options.grid.ranks(); ++rank) options.node_of.push_back(draw(0, 2));
}

void draw_rule(TrainerOptions& options, Draw& draw) {
  using actors::UpdateRule;
  options.tiers.rule = draw.of(UpdateRule::adamw, UpdateRule::adamw, UpdateRule::muon, UpdateRule::sgd);
  options.tiers.has_momentum = draw(0, 1) == 0;
}

void draw_wire(TrainerOptions& options, bool partly_trained, Draw& draw) {
  using collectives::WireType;
  const auto type = [&draw] { return draw.of(WireType::same, WireType::int8, WireType::int4); };
  if (draw(0, 2) > 0) return;
  options.wire.reduce = {type(), type()};
  const bool separate = options.precision.compute != options.tiers.master;
  if (partly_trained || (options.sharding.optimizer != options.sharding.parameters && !separate)) return;
  options.wire.gather.inter_node = draw.of(WireType::same, WireType::int8);
  if (draw(0, 1) == 0) options.wire.gather.intra_node = options.wire.gather.inter_node;
}

std::unique_ptr<RandomTokens> draw_tokens(int vocabulary, Draw& draw) {
  return std::make_unique<RandomTokens>(8, vocabulary, 1 << 20, draw(0, 3) == 0);
}

namespace {

bool partly_trained(const models::Architecture& architecture) {
  return architecture.trained_parameters() < architecture.parameters();
}

/// Draws what determines the result of a job.
TrainerOptions draw_job(const DrawnModel& model, Draw& draw) {
  const int rows = draw.of(1, 2, 3, 4, 4, 6);
  auto options = small_run({1, rows});
  options.precision = model.architecture.precision;
  options.microbatch_size = draw(1, 3);
  // In half of the jobs numbers of microbatches that 1F1B with chunks can have.
  options.batch_size = rows * (draw(0, 1) == 0 ? draw(1, 8) : options.microbatch_size * draw.of(2, 4, 6));
  options.steps = options.learning_rate.steps = draw(1, 3);
  options.clip = draw.of(0.0, 0.5, 1.0, 1e3);
  options.eval_every = draw(0, 2);
  options.eval_samples = draw(1, 2 * options.batch_size);
  if (model.writes_texts)
    options.sample = {
        .every = draw(0, 2), .prompt = {3, 1}, .tokens = 5, .sampling = {.temperature = 0.9, .seed = 4}};
  options.sharding = draw_sharding(draw);
  draw_groups(options, draw);
  options.algorithms = {"ring", "ring", "ring"};
  if (options.precision.compute == DType::f16 || draw(0, 3) == 0)
    options.loss_scale = {.scale = 1024, .dynamic = true};
  options.tiers.master = draw.of(DType::f32, DType::f32, DType::f32, DType::bf16);
  options.tiers.moments = draw.of(DType::f32, DType::f32, DType::bf16, DType::i8);
  draw_rule(options, draw);
  const auto units = model.architecture.units();
  if (std::ranges::all_of(units, [](const models::UnitSpec& unit) { return unit.averaged == 0; }))
    draw_wire(options, partly_trained(model.architecture), draw);
  // The first stage must have gradients.
  if (partly_trained(model.architecture)) {
    options.trained_sharding = options.sharding;
  } else if (options.loss_scale.dynamic && draw(0, 1) == 0) {
    options.fault = overflow(draw(0, rows - 1), draw(1, static_cast<int>(options.steps)));
  }
  return options;
}

/// The tiers' types and update rule, with all states on the device.
actors::TierOptions on_device(const actors::TierOptions& tiers) {
  return {.master = tiers.master, .moments = tiers.moments, .rule = tiers.rule, .has_momentum = tiers.has_momentum};
}

/// Checks that a rank with all states on the device holds exactly the bytes of their scopes.
void check_state_bytes(const actors::RankPlan& plan) {
  const TrainerOptions& options = plan.options;
  const int rows = options.grid.g_data;
  const auto expected =
      actors::state_bytes(actors::sharded_units(*plan.architecture, plan.layers, rows, options.tiers, options.wire),
                          options.shardings(), rows, options.group_size, options.precision, options.tiers);
  // Arrays start at multiples of 64 bytes, which only int8 does not fill.
  std::size_t padding = 0;
  for (const actors::UnitState& unit : plan.states->all()) {
    for (const actors::UnitView& moment : {unit.m, unit.v}) padding += (64 - moment.planned_bytes() % 64) % 64;
  }
  CHECK((padding == 0 || options.tiers.moments == DType::i8));
  using runtime::MemoryKind;
  for (const auto& [kind, bytes] : {std::pair{MemoryKind::parameters, expected.parameters},
                                    {MemoryKind::gradients, expected.gradients},
                                    {MemoryKind::optimizer, expected.optimizer + padding}}) {
    CHECK(plan.memory.bytes(kind) == bytes);
    CHECK(plan.memory.bytes(runtime::MemorySpace::device, kind) == bytes);
  }
  const bool trains = std::ranges::any_of(plan.states->all(), &actors::UnitState::trained);
  CHECK((expected.gradients > 0) == trains);
  const bool has_states =
      options.tiers.arrays_of(true) > 1 || actors::separate_master(options.precision, options.tiers);
  CHECK((expected.optimizer > 0) == (trains && has_states));
}

/// Checks that a rank plans exactly the optimizer states of the units that keep theirs on the device, within the
/// budget, and the slots and regions of the others.
void check_budget(const actors::RankPlan& plan) {
  const actors::TierOptions& tiers = plan.options.tiers;
  if (tiers.optimizer == TierKind::device) return;
  const TrainerOptions& options = plan.options;
  const auto units =
      actors::sharded_units(*plan.architecture, plan.layers, options.grid.g_data, tiers, options.wire);
  const auto& records = plan.optimizer.states.states;
  std::size_t kept = 0, padding = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const std::size_t bytes = actors::state_bytes(std::span(units).subspan(u, 1), options.shardings(),
                                                  options.grid.g_data, options.group_size, options.precision, tiers)
                                  .optimizer;
    const actors::UnitState& unit = plan.states->all()[u];
    CHECK((unit.m.memory.has_value() == (unit.optimizer_on_device() && unit.m.range.count > 0)));
    CHECK((!records.empty() && records[u].region_bytes() > 0) == (bytes > 0 && !unit.optimizer_on_device()));
    if (!unit.optimizer_on_device()) continue;
    kept += bytes;
    for (const actors::UnitView& moment : {unit.m, unit.v})
      padding += runtime::round_up(moment.planned_bytes(), runtime::MemoryPlan::alignment) - moment.planned_bytes();
  }
  CHECK(kept <= tiers.optimizer_budget);
  std::size_t slots = 0;
  if (plan.optimizer.states.slots && tiers.step == actors::StepLocation::device) {
    const runtime::MemoryItem& item = plan.memory.items()[plan.optimizer.states.slots->index];
    slots = item.slots * item.slot_bytes;
  }
  CHECK(plan.memory.bytes(runtime::MemorySpace::device, runtime::MemoryKind::optimizer) == kept + padding + slots);
}

std::string described(const TrainerOptions& options) {
  const actors::TierOptions& tiers = options.tiers;
  return fmt::format(
      "{} rows in groups of {}, sharding {} ({}), messages {} {} {} {}, {} with {} gradients, {} ({} arrays), {} "
      "master weights, {} "
      "moments, {} "
      "microbatches, {} stages, {} chunks, "
      "policy {}, defer_weights {}, deferred_limit {}, pipeline_limit {}, recompute {}, prefetch {}, reuse {}, "
      "parameters {} ({}), second copy {}, gradients {}, optimizer {}, activations {}, step on host {}, flip {}, "
      "bucket_elements "
      "{}, "
      "chunk_buckets {}, depth {}, optimizer_budget {}, check_every {}",
      options.grid.g_data, options.group_size, to_string(options.shardings().trained), to_string(options.sharding),
      to_string(options.wire.gather.intra_node), to_string(options.wire.gather.inter_node),
      to_string(options.wire.reduce.intra_node), to_string(options.wire.reduce.inter_node),
      to_string(options.precision.compute), to_string(options.precision.gradient), to_string(tiers.rule),
      tiers.arrays_of(true), to_string(tiers.master), to_string(tiers.moments), actors::microbatches_of(options),
      options.grid.g_inter, options.chunks_per_rank, actors::to_string(options.policy), options.defer_weights,
      options.deferred_limit.value_or(-1), options.pipeline_limit, options.recompute, options.prefetch,
      options.reuse, offload::to_string(tiers.parameters), offload::to_string(tiers.parameters_of(true)),
      tiers.secondary ? offload::to_string(*tiers.secondary) : "same", offload::to_string(tiers.gradients),
      offload::to_string(tiers.optimizer), offload::to_string(tiers.activations),
      tiers.step == actors::StepLocation::host, tiers.commit == actors::Commit::flip, tiers.bucket_elements,
      tiers.chunk_buckets, tiers.depth, tiers.optimizer_budget, options.check_every);
}

}  // namespace

void draw_placement(TrainerOptions& options, int layers, Draw& draw) {
  const int stages = options.grid.g_inter = draw(1, std::min(layers, 5));
  if (!options.node_of.empty()) {
    options.node_of.resize(static_cast<std::size_t>(options.grid.g_data));
    const std::vector<int> rows = options.node_of;
    for (int stage = 1; stage < stages; ++stage)
      options.node_of.insert(options.node_of.end(), rows.begin(), rows.end());
  }
  options.policy = draw.of(Policy::message_driven, Policy::message_driven, Policy::one_f_one_b, Policy::one_f_one_b,
                           Policy::gpipe, Policy::zero_bubble, Policy::zb_h1);
  options.chunks_per_rank = stages > 1 ? draw(1, std::clamp(layers / stages, 1, 6)) : 1;
  const bool chunked = options.chunks_per_rank > 1;
  const bool in_groups = actors::microbatches_of(options) % stages == 0;
  if (chunked && (options.policy == Policy::zb_h1 || (options.policy == Policy::one_f_one_b && !in_groups)))
    options.policy = Policy::zero_bubble;
  if (!options.wire.gather.same() && actors::messages_decide(options.policy)) options.policy = Policy::gpipe;
  options.defer_weights = options.policy == Policy::message_driven && draw(0, 1) == 0;
  options.deferred_limit.reset();
  if (draw(0, 1) == 0) options.deferred_limit = draw(0, 5);
  options.pipeline_limit = draw.of(0, draw(chunked ? 2 * stages : 1, 2 * stages + 2));
  options.recompute = draw.of(0, draw(1, 3));
  options.saved_activations = draw.of(models::SavedActivations::few, models::SavedActivations::all);
  options.prefetch = draw(0, 5);
  options.reuse = draw(0, 1) == 0;
  if (options.trained_sharding)
    options.sharding = collectives::parse_sharding(draw.of("ddp", "zero3", "mics", "zero++"));

  const auto tier = [&draw] { return draw.of(TierKind::device, TierKind::host, TierKind::nvme); };
  actors::TierOptions& tiers = options.tiers = on_device(options.tiers);
  tiers.files.make = [](runtime::EventLoop& loop, int rank) {
    return std::make_unique<offload::tests::SimulatedFiles>(
        loop, [random = std::mt19937_64(static_cast<std::uint64_t>(rank))]() mutable {
          return std::chrono::microseconds(random() % 500);
        });
  };
  tiers.bucket_elements = draw.of(256u, 600u, 1500u, 5000u, 1u << 20);
  tiers.chunk_buckets = draw.of(0u, 1u, 2u, 4u);
  tiers.bundle_bytes = draw.of(1u, 10'000u, 1u << 20);
  tiers.depth = draw.of(1u, 2u, 3u);
  if (draw(0, 3) > 0) {
    tiers.parameters = tier();
    if (options.trained_sharding) tiers.trained_parameters = tier();
    tiers.gradients = tier();
    tiers.optimizer = tier();
    // The states of some units, all or none.
    if (tiers.optimizer != TierKind::device && draw(0, 1) == 0)
      tiers.optimizer_budget = std::size_t{1} << draw(10, 18);
    if (tiers.optimizer != TierKind::device && tiers.rule != UpdateRule::muon) {
      tiers.step = draw.of(actors::StepLocation::device, actors::StepLocation::host);
      if (actors::separate_master(options.precision, tiers))
        tiers.commit = draw.of(actors::Commit::wait, actors::Commit::flip);
    }
  }
  if (options.recompute > 0) {
    tiers.activations = tier();
    tiers.checkpoint_places = draw(2, 5);
  }
  tiers.secondary =
      draw.of(std::optional<TierKind>(), std::optional(TierKind::device), std::optional(TierKind::host));
}

void check_any_placement(const std::function<DrawnModel(Draw&)>& make, int usual, int all, int under_sanitizers,
                         std::uint64_t first) {
  const auto count = static_cast<std::uint64_t>(effort(usual, all, under_sanitizers));
  for (const std::uint64_t seed : test::seeds(count, first)) {
    CAPTURE(seed);
    Draw draw(seed);
    const DrawnModel model = make(draw);
    auto options = draw_job(model, draw);
    const auto reference =
        run_simulated(model.alike ? *model.alike : model.architecture, *model.samples, options, 1);
    if (options.fault) CHECK(reference.steps[static_cast<std::size_t>(options.fault->step - 1)].skipped);
    for (const models::UnitSpec& unit : model.architecture.units())
      if (!unit.trained) CHECK((reference.weights.at(unit.name) == initial_values(unit, options)));

    draw_placement(options, static_cast<int>(model.architecture.layers.size()), draw);
    options.check_every = draw(0, 2);
    CAPTURE(described(options));
    const auto placed = run_simulated(model.architecture, *model.samples, options, seed, {},
                                      draw.of(Devices::inline_, Devices::delayed, Devices::delayed));
    check_same_bits(reference, placed);
    check_budget(actors::plan_rank(model.architecture, model.samples->sample_bytes(), options,
                                   draw(0, options.grid.ranks() - 1)));
    auto without_tiers = options;
    without_tiers.tiers = on_device(options.tiers);
    check_state_bytes(actors::plan_rank(model.architecture, model.samples->sample_bytes(), without_tiers,
                                        draw(0, options.grid.ranks() - 1)));
    CHECK(std::ssize(placed.checks) ==
          (options.check_every == 0 ? 0 : runtime::ceil_divide(options.steps, options.check_every)));
    for (const actors::ReplicaReport& report : placed.checks) CHECK(report.damage.empty());
    const auto skipped = std::ranges::count_if(placed.steps, &actors::StepResult::skipped);
    CHECK(placed.answers.skipped == skipped);
    if (options.tiers.commit == actors::Commit::flip && !actors::every_step_counts(options))
      CHECK(placed.answers.flipped + placed.answers.again == options.steps - skipped);
  }
}

std::vector<float> initial_values(const models::UnitSpec& unit, const TrainerOptions& options) {
  std::vector<float> values(unit.elements());
  models::initialize(unit, options.seed, 0, unit.elements(), values.data());
  if (!unit.trained)
    runtime::with_float_type(options.precision.compute, [&](auto type) {
      for (float& value : values) value = runtime::to_float(runtime::from_float<decltype(type)>(value));
    });
  return values;
}

}  // namespace ranvier::tests
