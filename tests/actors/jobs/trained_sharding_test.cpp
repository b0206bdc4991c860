// Complete jobs whose frozen base and trained part have different shardings (PaRO §3.2, Ψ ≫ Ψ′).
#include "tests/actors/memory_checkpoints.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::Policy;
using actors::TierKind;
using collectives::parse_sharding;
using runtime::MemoryKind;

namespace {

constexpr int rows = 4;

models::LlamaOptions tied_llama(runtime::DType dtype) {
  models::LlamaOptions options = tests::small_llama({dtype, runtime::DType::f32});
  options.tied = true;
  return options;
}

models::Architecture with_adapters(runtime::DType dtype) {
  return models::make_llama(tied_llama(dtype), tests::adapters({"q_proj", "v_proj", "down_proj"}));
}

/// Trained are a front block, a part of the others, and not the table that two stages have.
models::Architecture with_parts(runtime::DType dtype) {
  return models::make_llama(tied_llama(dtype), models::make_tuning("layers.0|q_proj|model.norm", ""));
}

actors::TrainerOptions run_of(const models::Architecture& architecture, const std::string& frozen,
                              const std::string& trained) {
  auto options = tests::small_run({1, rows}, frozen);
  options.group_size = 2;
  options.precision = architecture.precision;
  options.trained_sharding = parse_sharding(trained);
  return options;
}

constexpr std::array frozen_ways{"ddp", "zero3", "mics", "zero++"};
constexpr std::array trained_ways{"ddp", "zero1", "zero2", "zero3", "mics", "paro-iig", "zero++", "IGN", "GNN"};

}  // namespace

TEST_CASE(
    "the sharding of the base does not change any bit of the trained part, on any grid, with states anywhere") {
  const tests::RandomTokens tokens(8, 37);
  for (const std::uint64_t seed : test::seeds(tests::effort(24, 400, 6))) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    const auto dtype = draw(0, 1) == 0 ? runtime::DType::f32 : runtime::DType::bf16;
    const auto architecture = draw(0, 1) == 0 ? with_adapters(dtype) : with_parts(dtype);
    const std::string frozen = frozen_ways[seed % frozen_ways.size()];
    const std::string trained = trained_ways[seed / frozen_ways.size() % trained_ways.size()];
    INFO("frozen ", frozen, ", trained ", trained);
    auto options = run_of(architecture, trained, trained);
    options.clip = draw(0, 1);
    const auto reference = run_simulated(architecture, tokens, options, seed);
    options.sharding = parse_sharding(frozen);
    options.grid.g_inter = draw(1, 3);
    options.policy =
        std::array{Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}[std::size_t(draw(0, 2))];
    options.recompute = draw(0, 2);
    options.prefetch = draw(0, 2);
    options.reuse = draw(0, 1) == 0;
    options.check_every = draw(0, 1);
    const auto tier = [&] { return draw(0, 1) == 0 ? TierKind::device : TierKind::host; };
    if (draw(0, 3) > 0)
      options.tiers = {
          .parameters = tier(), .trained_parameters = tier(), .optimizer = tier(), .bucket_elements = 256};
    INFO("parameters ", offload::to_string(options.tiers.parameters), ", options.tiers.parameters_of(true) ",
         offload::to_string(options.tiers.parameters_of(true)), ", g_inter ", options.grid.g_inter, ", policy ",
         actors::to_string(options.policy));
    const auto devices = draw(0, 2) == 0 ? tests::Devices::inline_ : tests::Devices::delayed;
    tests::check_same_bits(reference, run_simulated(architecture, tokens, options, seed, {}, devices));
  }
}

TEST_CASE("a rank holds frozen units as their sharding defines, and trained units as the other one does") {
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    const auto architecture = with_adapters(dtype);
    for (const std::string frozen : frozen_ways) {
      for (const std::string trained : trained_ways) {
        INFO("frozen ", frozen, ", trained ", trained);
        auto options = run_of(architecture, frozen, trained);
        options.grid.g_inter = 2;
        for (const int rank : {0, 3, 5}) {
          const auto plan = tests::plan_of(architecture, options, rank);
          const auto expected = actors::state_bytes(actors::sharded_units(architecture, plan.layers, rows),
                                                    options.shardings(), rows, 2, options.precision);
          CHECK(plan.memory.bytes(MemoryKind::parameters) == expected.parameters);
          CHECK(plan.memory.bytes(MemoryKind::gradients) == expected.gradients);
          CHECK(plan.memory.bytes(MemoryKind::optimizer) == expected.optimizer);
        }
      }
    }
  }
}

TEST_CASE("a base in host memory or in files takes no device memory, while its adapters do") {
  using runtime::MemorySpace;
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    const auto architecture = with_adapters(dtype);
    for (const TierKind kind : {TierKind::host, TierKind::nvme}) {
      auto options = run_of(architecture, "zero3", "ddp");
      options.policy = Policy::one_f_one_b;
      const auto near =
          actors::state_bytes(actors::sharded_units(architecture, {0, architecture.layers.size()}, rows),
                              options.shardings(), rows, 2, options.precision);
      options.tiers.parameters = kind;
      options.tiers.trained_parameters = TierKind::device;
      const auto far = tests::plan_of(architecture, options, 0);
      CHECK(far.memory.bytes(MemorySpace::device, MemoryKind::parameters) == near.parameters - near.frozen);
      CHECK(far.memory.bytes(MemorySpace::device, MemoryKind::optimizer) == near.optimizer);
      CHECK(far.tiers.bytes(kind) >= near.frozen);
      CHECK(far.tiers.bytes(kind) < near.frozen + far.states->all().size() * 4096);
      options.tiers.parameters = TierKind::device;
      options.tiers.trained_parameters = kind;
      const auto turned = tests::plan_of(architecture, options, 0);
      CHECK(turned.memory.bytes(MemorySpace::device, MemoryKind::parameters) == near.frozen);
    }
  }
}

TEST_CASE("adapters that every row holds completely are read in place: only the base takes buffers") {
  const auto architecture = with_adapters(runtime::DType::bf16);
  const auto places_of = [&](const char* frozen, const char* trained) {
    const auto plan = tests::plan_of(architecture, run_of(architecture, frozen, trained), 0);
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
  auto options = tests::small_run({2, rows}, "zero3");
  options.steps = 4;
  options.group_size = 2;
  options.trained_sharding = parse_sharding("ddp");
  tests::CheckpointedJob job{.every = 2, .tuning = models::make_tuning("^h.2|ln_f", "")};
  const auto whole = run_checkpointed(tests::small_gpt(3), options, job, 1);
  job.from = &whole.states.at(2);
  options.sharding = parse_sharding("mics");
  const auto other_base = run_checkpointed(tests::small_gpt(3), options, job, 2, tests::Devices::delayed);
  CHECK(other_base.job.weights == whole.job.weights);
  CHECK((other_base.states.at(4) == whole.states.at(4)));
  for (const char* const trained : {"zero1", "zero3", "paro-iig"}) {
    CAPTURE(trained);
    options.trained_sharding = parse_sharding(trained);
    const auto late = run_checkpointed(tests::small_gpt(3), options, job, 3);
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
