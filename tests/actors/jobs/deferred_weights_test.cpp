// Complete jobs with deferred weight gradients: they give the bits of a job that computes them in backward passes, and
// take exactly the memory of the limit.
#include "actors/rank/rank_plan.hpp"
#include "models/images/image_set.hpp"
#include "models/images/image_source.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using actors::TierKind;
using runtime::DType;
using runtime::MemorySpace;

namespace {

struct Model {
  const char* name;
  models::Architecture architecture;
  std::unique_ptr<models::SampleSource> samples;
};

Model make_model(int which, const models::Precision& precision, bool documents) {
  auto gpt = in_precision(small_gpt(5), precision);
  gpt.dropout = 0.1f;
  models::LlamaOptions llama = small_llama(precision);
  llama.tied = true;
  const auto tokens = [&](int vocabulary) {
    return std::make_unique<RandomTokens>(8, vocabulary, 1 << 20, documents);
  };
  switch (which) {
    case 0: {
      models::ResnetOptions resnet = small_resnet;
      resnet.precision = precision;
      const auto set = std::make_shared<const models::SyntheticSet>(resnet.image_size, resnet.classes);
      return {"images", models::make_resnet(resnet),
              std::make_unique<models::ImageSource>(set, 0, 1000, std::nullopt)};
    }
    case 1:
      return {"adapters", models::make_llama(llama, adapters({"q_proj", "v_proj", "down_proj"})), tokens(37)};
    case 2:
      return {"a part", models::make_llama(llama, models::make_tuning("layers.1|q_proj|model.norm", "")),
              tokens(37)};
    case 3:
      llama.vocab_size = 150;
      llama.tile = 4;
      return {"tiles", models::make_llama(llama), tokens(150)};
    default:
      return {"gpt", models::make_gpt(gpt), tokens(37)};
  }
}

actors::TrainerOptions piped(int g_inter, Policy policy) {
  auto options = small_run({g_inter, 1});
  options.policy = policy;
  return options;
}

/// Device memory of a stage's activations.
std::size_t activations(const models::Architecture& architecture, const actors::TrainerOptions& options,
                        int stage) {
  return plan_of(architecture, options, stage).memory.bytes(MemorySpace::device, runtime::MemoryKind::activations);
}

}  // namespace

// Replay one with --seed=N.
TEST_CASE("deferred weight gradients do not change any bit, with any order of messages and location of states") {
  for (const std::uint64_t seed : test::seeds(effort(64, 2000, 64))) {
    CAPTURE(seed);
    std::mt19937_64 random(seed * 7919 + 1);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    const DType compute = std::array{DType::f32, DType::bf16, DType::f16}[std::size_t(draw(0, 2))];
    const models::Precision precision{compute, draw(0, 1) == 0 ? DType::f32 : compute};
    const bool documents = draw(0, 3) == 0;
    const Model model = make_model(static_cast<int>(seed % 9), precision, documents);
    CAPTURE(model.name);
    auto options = small_run();
    const int rows = draw(1, 3);
    options.grid = {1, rows};
    options.batch_size = rows * draw(5, 9);
    options.microbatch_size = draw(1, 2);
    options.precision = precision;
    options.clip = draw(0, 1);
    options.eval_every = draw(0, 2);
    options.eval_samples = rows;
    options.sharding = collectives::parse_sharding(shardings[random() % shardings.size()]);
    options.group_size = rows % 2 == 0 ? draw(1, 2) : 1;
    options.algorithms = {"ring", "ring", "ring"};
    if (compute == DType::f16) options.loss_scale = {.scale = 1024, .dynamic = true};
    const auto reference = run_simulated(model.architecture, *model.samples, options, 1);
    options.grid.g_inter = draw(2, 5);
    options.policy = seed % 2 == 0 ? Policy::zb_h1 : Policy::zero_bubble;
    if (options.policy == Policy::zero_bubble && draw(0, 1) == 0) {
      options.policy = Policy::message_driven;
      options.defer_weights = true;
    }
    if (draw(0, 2) > 0) options.deferred_limit = draw(0, 5);
    options.pipeline_limit = draw(0, 1) * draw(1, 6);
    draw_memory(options, draw);
    INFO("sharding ", to_string(options.sharding), ", g_inter ", options.grid.g_inter, ", rows ", rows, ", policy ",
         actors::to_string(options.policy), ", options.deferred_limit.value_or(-1) ",
         options.deferred_limit.value_or(-1), ", pipeline_limit ", options.pipeline_limit, ", recompute ",
         options.recompute, ", activations ", offload::to_string(options.tiers.activations), ", gradients ",
         offload::to_string(options.tiers.gradients), ", group_size ", options.group_size,
         ", options.tiers.commit == actors::Commit::flip ", options.tiers.commit == actors::Commit::flip);
    const auto devices = draw(0, 2) == 0 ? Devices::inline_ : Devices::delayed;
    check_same_bits(reference, run_simulated(model.architecture, *model.samples, options, seed, {}, devices));
  }
}

TEST_CASE("a deferred microbatch takes exactly the bytes that its weight gradients need") {
  const auto architecture = models::make_gpt(small_gpt(8));
  for (const Policy policy : {Policy::zero_bubble, Policy::zb_h1}) {
    for (const int recompute : {0, 1, 2}) {
      for (const TierKind tier : {TierKind::device, TierKind::host}) {
        if (recompute == 0 && tier == TierKind::host) continue;
        INFO("policy ", actors::to_string(policy), ", recompute ", recompute);
        auto options = piped(2, policy);
        options.pipeline_limit = 4;
        options.recompute = recompute;
        options.tiers.activations = tier;
        const auto plan = plan_of(architecture, options, 1);
        // Arrays as layers declare them, each at an aligned offset.
        const auto aligned = [](std::size_t bytes) {
          constexpr std::size_t alignment = runtime::MemoryPlan::alignment;
          return (bytes + alignment - 1) / alignment * alignment;
        };
        std::size_t needed = 0;
        for (std::size_t l = 0; l < plan.stage->layers(); ++l) {
          const models::Layer& layer = *plan.stage->layer(l).layer;
          const models::LayerMemory memory = layer.memory(plan.stage->capacity());
          const std::size_t output = aligned(layer.output_elements(8) * sizeof(float) * 2);
          needed += aligned(memory.deferred);
          if (memory.output_gradient && l + 1 < plan.stage->layers()) needed += output;
          if (recompute == 0) continue;
          needed += aligned(memory.saved) + output;
          if (plan.stage->layer(l).reads_checkpoint) needed += 2 * 8 * 16 * sizeof(float);
        }
        CHECK(plan.stage->slice(0).sizes().deferred == needed);
        options.deferred_limit = 1;
        const std::size_t one = activations(architecture, options, 1);
        for (int limit = 2; limit <= 4; ++limit) {
          options.deferred_limit = limit;
          CHECK(activations(architecture, options, 1) == one + std::size_t(limit - 1) * needed);
        }
        options.deferred_limit = 9;  // at most as many as slots
        CHECK(activations(architecture, options, 1) == one + 3 * needed);
      }
    }
  }
}

TEST_CASE("by default as many microbatches are deferred as under ZB-H1, and only one with full recomputation") {
  const auto architecture = models::make_gpt(small_gpt(8));
  for (const Policy policy : {Policy::zero_bubble, Policy::zb_h1}) {
    auto options = piped(4, policy);
    for (int stage = 0; stage < 4; ++stage)
      CHECK(plan_of(architecture, options, stage).stage->slice(0).deferred_slots() == stage + 1);
    options.recompute = 1;
    CHECK(plan_of(architecture, options, 3).stage->slice(0).deferred_slots() == 1);
    options.steps = 0;
    CHECK(plan_of(architecture, options, 3).stage->slice(0).deferred_slots() == 0);
  }
}

TEST_CASE("with a limit of 0, or without trained parameters, weight gradients take their usual memory") {
  const auto architecture = models::make_gpt(small_gpt(8));
  auto never = piped(3, Policy::zero_bubble);
  never.deferred_limit = 0;
  for (int stage = 0; stage < 3; ++stage)
    CHECK(activations(architecture, never, stage) ==
          activations(architecture, piped(3, Policy::one_f_one_b), stage));
  const auto front = models::make_gpt(small_gpt(8), models::make_tuning("h.0", ""));
  CHECK(activations(front, piped(3, Policy::zero_bubble), 1) ==
        activations(front, piped(3, Policy::one_f_one_b), 1));
  CHECK(plan_of(front, piped(3, Policy::zero_bubble), 0).stage->defers());
  CHECK_FALSE(plan_of(front, piped(3, Policy::zero_bubble), 2).stage->defers());
}

TEST_CASE("weight gradients of a fixed order of passes cannot be deferred by flag") {
  const auto architecture = models::make_gpt(small_gpt(4));
  auto options = piped(2, Policy::gpipe);
  options.defer_weights = true;
  CHECK_THROWS_WITH_AS((void)activations(architecture, options, 0),
                       doctest::Contains("`policy` gpipe cannot defer weight gradients (`defer_weights`)"), Error);
}
