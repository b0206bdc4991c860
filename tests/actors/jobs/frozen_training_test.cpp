// Complete jobs that train a part of a model: the same bits on every grid, and only parameters, but no states, of
// frozen units.
#include "models/core/initialize.hpp"
#include "models/families/gpt.hpp"
#include "tests/actors/memory_checkpoints.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::TierKind;

namespace {

/// With biases.
models::LlamaOptions tied_llama(const models::Precision& precision = {}) {
  models::LlamaOptions options = tests::small_llama(precision);
  options.qkv_bias = options.tied = true;
  return options;
}

models::Architecture model(const std::string& train, const std::string& freeze,
                           const models::Precision& precision = {}) {
  return models::make_llama(tied_llama(precision), models::make_tuning(train, freeze));
}

tests::JobResult run(const models::Architecture& architecture, const actors::TrainerOptions& options,
                     std::uint64_t seed, tests::Devices devices = tests::Devices::inline_) {
  const auto llama = tied_llama();
  return run_simulated(architecture, tests::RandomTokens(llama.sequence_length, llama.vocab_size), options, seed,
                       {}, devices);
}

/// Checks that frozen units keep their initial values, and trained ones do not.
void check_what_changed(const models::Architecture& architecture, const tests::JobResult& result,
                        const actors::TrainerOptions& options) {
  for (const models::UnitSpec& unit : architecture.units()) {
    CAPTURE(unit.name);
    std::vector<float> before(unit.elements());
    models::initialize(unit, options.seed, 0, unit.elements(), before.data());
    const runtime::DType dtype = options.precision.compute;
    if (dtype != runtime::DType::f32 && !unit.trained) {
      runtime::with_float_type(dtype, [&](auto type) {
        using Element = decltype(type);
        for (float& value : before) value = runtime::to_float(runtime::from_float<Element>(value));
      });
    }
    CHECK((result.weights.at(unit.name) == before) == !unit.trained);
  }
}

constexpr std::pair<const char*, const char*> tunings[] = {
    {"layers.2|model.norm", ""},  // backward passes end in the last stage
    {"q_proj|up_proj", ""},       // all blocks are split
    {"", "embed|layers.1"},       // frozen in the middle, and a table that two stages have
    {"layers.0", ""},             // everything is differentiated, only the front has gradients
};

}  // namespace

TEST_CASE("a partly trained model gives the same bits on every grid, sharded, with states anywhere") {
  std::uint64_t seed = 1;
  tests::Share share(1, 3);
  for (const auto& [train, freeze] : tunings) {
    INFO("train ", train, ", freeze ", freeze);
    const models::Architecture architecture = model(train, freeze);
    for (const char* const name : {"ddp", "zero3", "zero++", "IGN"}) {
      CAPTURE(name);
      if (!share.takes()) continue;
      auto options = tests::small_run({1, 2}, name);
      options.group_size = 1;
      const auto reference = run(architecture, options, 1);
      check_what_changed(architecture, reference, options);
      for (const int g_inter : {1, 2, 3}) {
        CAPTURE(g_inter);
        options.grid.g_inter = g_inter;
        for (const actors::Policy policy :
             {actors::Policy::message_driven, actors::Policy::one_f_one_b, actors::Policy::gpipe}) {
          options.policy = policy;
          options.tiers = {};
          options.recompute = static_cast<int>(seed % 3);
          check_same_bits(reference, run(architecture, options, ++seed));
        }
        options.policy = actors::Policy::message_driven;
        options.recompute = 1;
        options.tiers = {.parameters = TierKind::host,
                         .gradients = TierKind::host,
                         .optimizer = TierKind::host,
                         .activations = TierKind::host,
                         .bucket_elements = 256};
        check_same_bits(reference, run(architecture, options, ++seed, tests::Devices::delayed));
        options.tiers.commit = actors::Commit::flip;
        check_same_bits(reference, run(architecture, options, ++seed, tests::Devices::delayed));
        if (g_inter != 2) continue;
        options.chunks_per_rank = 2;  // some tunings leave model chunks without trained parameters
        check_same_bits(reference, run(architecture, options, ++seed, tests::Devices::delayed));
        options.chunks_per_rank = 1;
      }
    }
  }
}

TEST_CASE("a partly trained model gives the same bits in half precision, clipped or not") {
  std::uint64_t seed = 1;
  for (const auto& [train, freeze] : tunings) {
    CAPTURE(train);
    for (const double clip : {0.0, 1.0}) {
      const models::Precision precision{runtime::DType::bf16, runtime::DType::bf16};
      const models::Architecture architecture = model(train, freeze, precision);
      auto options = tests::small_run({1, 2});
      options.precision = precision;
      options.clip = clip;
      const auto reference = run(architecture, options, 1);
      check_what_changed(architecture, reference, options);
      for (const char* const name : {"zero1", "zero3"}) {
        CAPTURE(name);
        options.sharding = collectives::parse_sharding(name);
        options.grid.g_inter = 1;
        const auto shared = run(architecture, options, ++seed);
        options.grid.g_inter = 3;
        options.check_every = 1;
        check_same_bits(shared, run(architecture, options, ++seed, tests::Devices::delayed));
        options.check_every = 0;
      }
    }
  }
}

TEST_CASE("frozen units have only parameters in the plan of any rank") {
  for (const auto& [train, freeze] : tunings) {
    CAPTURE(train);
    for (const models::Precision& precision :
         {models::Precision{}, models::Precision{runtime::DType::bf16, runtime::DType::f32}}) {
      const models::Architecture architecture = model(train, freeze, precision);
      for (const char* const name : {"ddp", "zero2", "zero3", "zero++", "paro-nig"}) {
        CAPTURE(name);
        auto options = tests::small_run({2, 4}, name);
        options.precision = precision;
        options.group_size = 2;
        for (int rank = 0; rank < options.grid.ranks(); ++rank) {
          const auto plan = tests::plan_of(architecture, options, rank);
          const auto expected = actors::state_bytes(actors::sharded_units(architecture, plan.layers, 4),
                                                    options.sharding, 4, 2, precision);
          using runtime::MemoryKind;
          const auto planned = [&](MemoryKind kind) {
            return plan.memory.bytes(runtime::MemorySpace::device, kind);
          };
          CHECK(planned(MemoryKind::parameters) == expected.parameters);
          CHECK(planned(MemoryKind::gradients) == expected.gradients);
          CHECK(planned(MemoryKind::optimizer) == expected.optimizer);
          const bool trains = std::any_of(plan.states->all().begin(), plan.states->all().end(),
                                          [](const actors::UnitState& unit) { return unit.trained(); });
          CHECK((expected.gradients > 0) == trains);
          CHECK((expected.optimizer > 0) == trains);
        }
      }
    }
  }
}

TEST_CASE("a partly trained model resumes from a checkpoint on any grid, with its frozen units in the checkpoint") {
  for (const char* const train : {"^h.2|ln_f", "^h.1"}) {
    CAPTURE(train);
    for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
      auto options = tests::small_run({1, 2}, "zero3");
      options.precision = {dtype, runtime::DType::f32};
      options.steps = 4;
      const auto gpt = tests::in_precision(tests::small_gpt(3), options.precision);
      tests::CheckpointedJob job{.every = 2, .tuning = models::make_tuning(train, "")};
      const auto whole = run_checkpointed(gpt, options, job, 1);
      const tests::SavedState& state = whole.states.at(2);
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
          const auto late = run_checkpointed(gpt, options, job, 2, tests::Devices::delayed);
          CHECK(late.job.weights == whole.job.weights);
          CHECK((late.states.at(4) == whole.states.at(4)));
        }
      }
    }
  }
}

TEST_CASE("adapters give the same bits on every grid, sharded, with states and their frozen base anywhere") {
  std::uint64_t seed = 1;
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    auto options = tests::small_run();
    options.precision = {dtype, runtime::DType::f32};
    const models::Architecture architecture =
        models::make_llama(tied_llama(options.precision), tests::adapters({"q_proj", "v_proj", "down_proj"}, 0.2f));
    options.grid = {1, 2};
    for (const char* const name : {"ddp", "GNN", "zero3"}) {
      CAPTURE(name);
      options.grid.g_inter = 1;
      options.recompute = 0;
      options.tiers = {};
      options.sharding = collectives::parse_sharding(name);
      const auto reference = run(architecture, options, 1);
      check_what_changed(architecture, reference, options);
      for (const int g_inter : {1, 3}) {
        CAPTURE(g_inter);
        options.grid.g_inter = g_inter;
        options.recompute = 1;
        options.tiers = {};
        check_same_bits(reference, run(architecture, options, ++seed));
        options.tiers = {.parameters = TierKind::host, .optimizer = TierKind::host, .bucket_elements = 256};
        check_same_bits(reference, run(architecture, options, ++seed, tests::Devices::delayed));
      }
    }
  }
}

TEST_CASE("adapters of a GPT, with and without tiles, give the same bits on every grid, with states anywhere") {
  std::uint64_t seed = 1;
  for (const int tile : {1, 2}) {
    CAPTURE(tile);
    auto options = tests::small_run();
    const models::GptOptions gpt{.layers = 3,
                                 .hidden = 16,
                                 .heads = 4,
                                 .vocab_size = 37,
                                 .sequence_length = 8,
                                 .dropout = 0.1f,
                                 .tile = tile};
    const models::Architecture architecture =
        models::make_gpt(gpt, tests::adapters({"c_attn", "mlp.c_proj"}, 0.2f));
    options.grid = {1, 2};
    options.sharding = collectives::parse_sharding(tile == 1 ? "ddp" : "zero3");
    const auto reference = run(architecture, options, 1);
    check_what_changed(architecture, reference, options);
    options.grid.g_inter = 3;
    options.recompute = 1;
    check_same_bits(reference, run(architecture, options, ++seed));
    options.tiers = {.parameters = TierKind::host, .optimizer = TierKind::host, .bucket_elements = 256};
    check_same_bits(reference, run(architecture, options, ++seed, tests::Devices::delayed));
  }
}
