// Complete jobs that train a part of a model: the same bits in any placement, and only parameters, but no states, of
// frozen units. Base and trained part may have different shardings (PaRO §3.2, Ψ ≫ Ψ′).
#include "models/families/gpt.hpp"
#include "tests/actors/memory_checkpoints.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::TierKind;
using collectives::parse_sharding;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

constexpr int rows = 4;

/// Trained parts of a LLaMA: patterns to train and to freeze.
constexpr std::pair<const char*, const char*> tunings[] = {
    {"layers.2|model.norm", ""},         // backward passes end in the last stage
    {"q_proj|up_proj", ""},              // all blocks are split
    {"", "embed|layers.1"},              // frozen in the middle, and a table that two stages have
    {"layers.0", ""},                    // everything is differentiated, only the front has gradients
    {"layers.0|q_proj|model.norm", ""},  // a front block, and a part of the others
};

/// With biases, and a table that two stages have.
models::Architecture tied_llama(const models::Precision& precision, const models::Tuning& tuning) {
  models::LlamaOptions options = small_llama(precision);
  options.qkv_bias = options.tied = true;
  return models::make_llama(options, tuning);
}

models::Architecture with_adapters(const models::Precision& precision) {
  return tied_llama(precision, adapters({"q_proj", "v_proj", "down_proj"}, 0.2f));
}

/// A LLaMA of which a part is trained, or one with adapters, or a GPT with adapters, in tiles or not: all as often.
DrawnModel draw_model(Draw& draw) {
  const models::Precision precision = draw_precision(draw);
  auto tokens = draw_tokens(37, draw);
  constexpr int parts = int{std::size(tunings)};
  const int kind = draw(0, parts + 2);
  if (kind < parts) {
    const auto& [train, freeze] = tunings[static_cast<std::size_t>(kind)];
    return {tied_llama(precision, models::make_tuning(train, freeze)), std::move(tokens)};
  }
  if (kind == parts) return {with_adapters(precision), std::move(tokens)};
  auto gpt = in_precision(small_gpt(3), precision);
  gpt.heads = 4;
  gpt.dropout = 0.1f;
  gpt.tile = kind - parts;
  return {models::make_gpt(gpt, adapters({"c_attn", "mlp.c_proj"}, 0.2f)), std::move(tokens)};
}

actors::TrainerOptions run_of(const models::Architecture& architecture, const std::string& frozen,
                              const std::string& trained) {
  auto options = small_run({1, rows}, frozen);
  options.group_size = 2;
  options.precision = architecture.precision;
  options.trained_sharding = parse_sharding(trained);
  return options;
}

}  // namespace

TEST_CASE("a partly trained model gives the same bits in any placement, with any sharding of its frozen base") {
  check_any_placement(draw_model, 120, 1000, 15, 900);  // the first 15 draw every kind of model
}

TEST_CASE("a chunk that trains nothing keeps the deferred weight gradients of its rank's other chunk") {
  const RandomTokens tokens(8, 37);
  // The trained block is in the first chunk of rank 0, of rank 1, or in the second chunk of rank 0.
  for (const char* const train : {"^h.0", "^h.2", "^h.4"}) {
    const auto gpt = models::make_gpt(small_gpt(6), models::make_tuning(train, ""));
    auto options = small_run();
    const auto reference = run_simulated(gpt, tokens, options, 1);
    options.grid.g_inter = options.chunks_per_rank = 2;
    options.layers_per_stage = {2, 2, 2, 2};
    options.policy = actors::Policy::zero_bubble;
    for (const int recompute : {0, 1}) {
      for (const int deferred_limit : {1, 4}) {
        INFO("trained ", std::string(train), ", recompute ", recompute, ", deferred_limit ", deferred_limit);
        options.recompute = recompute;
        options.deferred_limit = deferred_limit;
        check_same_bits(reference, run_simulated(gpt, tokens, options, 2));
      }
    }
  }
}

TEST_CASE("training changes every trained unit") {
  for (const std::uint64_t seed : test::seeds(60)) {
    CAPTURE(seed);
    Draw draw(seed);
    const DrawnModel drawn = draw_model(draw);
    auto options = small_run({1, 2});
    options.precision = drawn.architecture.precision;
    if (options.precision.compute == runtime::DType::f16) continue;  // a step may be skipped
    const auto result = run_simulated(drawn.architecture, *drawn.samples, options, 1);
    for (const models::UnitSpec& unit : drawn.architecture.units()) {
      CAPTURE(unit.name);
      if (unit.trained) CHECK((result.weights.at(unit.name) != initial_values(unit, options)));
    }
  }
}

TEST_CASE("a base in host memory or in files takes no device memory, while its adapters do") {
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    const auto architecture = with_adapters({dtype, runtime::DType::f32});
    for (const TierKind kind : {TierKind::host, TierKind::nvme}) {
      auto options = run_of(architecture, "zero3", "ddp");
      options.policy = actors::Policy::one_f_one_b;
      const auto near =
          actors::state_bytes(actors::sharded_units(architecture, {{0, architecture.layers.size()}}, rows),
                              options.shardings(), rows, 2, options.precision);
      options.tiers.parameters = kind;
      options.tiers.trained_parameters = TierKind::device;
      const auto far = plan_of(architecture, options, 0);
      CHECK(far.memory.bytes(MemorySpace::device, MemoryKind::parameters) == near.parameters - near.frozen);
      CHECK(far.memory.bytes(MemorySpace::device, MemoryKind::optimizer) == near.optimizer);
      CHECK(far.tiers.bytes(kind) >= near.frozen);
      CHECK(far.tiers.bytes(kind) < near.frozen + far.states->all().size() * 4096);
      options.tiers.parameters = TierKind::device;
      options.tiers.trained_parameters = kind;
      const auto turned = plan_of(architecture, options, 0);
      CHECK(turned.memory.bytes(MemorySpace::device, MemoryKind::parameters) == near.frozen);
    }
  }
}

TEST_CASE("adapters that every row holds completely are read in place: only the base takes buffers") {
  const auto architecture = with_adapters({runtime::DType::bf16, runtime::DType::f32});
  const auto places_of = [&](const char* frozen, const char* trained) {
    const auto plan = plan_of(architecture, run_of(architecture, frozen, trained), 0);
    std::array<std::size_t, 2> places{};  // frozen units, trained units
    const auto& units = plan.states->all();
    for (std::size_t u = 0; u < units.size() && !plan.parameters.classes.of_unit.empty(); ++u) {
      const std::size_t of_class = plan.parameters.classes.places[plan.parameters.classes.of_unit[u]];
      auto& most = places[units[u].trained() ? 1 : 0];
      most = std::max(most, of_class);
    }
    return places;
  };
  CHECK(places_of("zero3", "ddp")[0] > 0);
  CHECK(places_of("zero3", "ddp")[1] == 0);
  CHECK(places_of("zero3", "zero1")[1] == 0);
  CHECK(places_of("ddp", "zero3")[0] == 0);
  CHECK(places_of("ddp", "zero3")[1] > 0);
  CHECK(places_of("zero3", "zero3")[1] > 0);
  CHECK(places_of("ddp", "ddp")[0] == 0);
}

TEST_CASE("a run resumes with another sharding of its base to the bit, and of its trained part within rounding") {
  auto options = small_run({2, rows}, "zero3");
  options.steps = 4;
  options.group_size = 2;
  options.trained_sharding = parse_sharding("ddp");
  CheckpointedJob job{.every = 2, .tuning = models::make_tuning("^h.2|ln_f", "")};
  const auto whole = run_checkpointed(small_gpt(3), options, job, 1);
  job.from = &whole.states.at(2);
  options.sharding = parse_sharding("mics");
  const auto other_base = run_checkpointed(small_gpt(3), options, job, 2, Devices::delayed);
  CHECK(other_base.job.weights == whole.job.weights);
  CHECK((other_base.states.at(4) == whole.states.at(4)));
  for (const char* const trained : {"zero1", "zero3", "paro-iig"}) {
    CAPTURE(trained);
    options.trained_sharding = parse_sharding(trained);
    const auto late = run_checkpointed(small_gpt(3), options, job, 3);
    for (const auto& [unit, values] : whole.job.weights) {
      CAPTURE(unit);
      const auto& others = late.job.weights.at(unit);
      REQUIRE(others.size() == values.size());
      bool close = true;
      for (std::size_t e = 0; e < values.size(); ++e) close = close && std::abs(others[e] - values[e]) < 1e-4f;
      CHECK(close);
    }
  }
}

TEST_CASE("a partly trained model resumes from a checkpoint on any grid, with its frozen units in the checkpoint") {
  for (const char* const train : {"^h.2|ln_f", "^h.1"}) {
    CAPTURE(train);
    for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
      auto options = small_run({1, 2}, "zero3");
      options.precision = {dtype, runtime::DType::f32};
      options.steps = 4;
      const auto gpt = in_precision(small_gpt(3), options.precision);
      CheckpointedJob job{.every = 2, .tuning = models::make_tuning(train, "")};
      const auto whole = run_checkpointed(gpt, options, job, 1);
      const SavedState& state = whole.states.at(2);
      const std::vector<models::UnitSpec> units = models::make_gpt(gpt, job.tuning).units();
      for (const models::UnitSpec& unit : units) {
        CAPTURE(unit.name);
        CHECK(state.arrays.contains(unit.name + " weights"));
        CHECK(state.arrays.contains(unit.name + " m") == unit.trained);
        CHECK(state.arrays.contains(unit.name + " v") == unit.trained);
      }
      job.from = &state;
      for (const int g_inter : {1, 2, 3}) {
        for (const TierKind parameters : {TierKind::device, TierKind::host}) {
          CAPTURE(g_inter);
          options.grid.g_inter = g_inter;
          options.tiers = {.parameters = parameters, .optimizer = parameters, .bucket_elements = 600};
          const auto late = run_checkpointed(gpt, options, job, 2, Devices::delayed);
          CHECK(late.job.weights == whole.job.weights);
          CHECK((late.states.at(4) == whole.states.at(4)));
        }
      }
    }
  }
}
