// Memory of deferred weight gradients: exactly what the limit needs.
#include "actors/rank/rank_plan.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using actors::TierKind;
using runtime::MemorySpace;

namespace {

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
