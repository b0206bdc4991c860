// Memory of activation checkpoints on the device and in a tier.
#include "actors/pipeline/activation_checkpoints.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using actors::TierKind;

TEST_CASE("with checkpoints off the device a rank keeps a few buffers for them, and the tier all slots") {
  const auto architecture = models::make_gpt(small_gpt(8));
  auto options = small_run();
  options.policy = Policy::gpipe;  // as many slots as microbatches
  options.recompute = 1;
  const auto device_bytes = [](const actors::RankPlan& plan) {
    return plan.memory.bytes(runtime::MemorySpace::device, runtime::MemoryKind::activations);
  };
  const auto on_device = plan_of(architecture, options, 0);
  options.tiers.activations = TierKind::host;
  const auto away = plan_of(architecture, options, 0);
  // Ten layers have nine activations between them, 2 samples × 8 positions × 16 channels each: a quarter of a page.
  const std::size_t checkpoints = 9 * static_cast<std::size_t>(away.slots.front());
  CHECK(away.slots == std::vector{4});
  CHECK(away.tiers.bytes(TierKind::host) == checkpoints * 4096);
  CHECK(device_bytes(on_device) - device_bytes(away) == checkpoints * 1024 - 4 * 4096);
}

TEST_CASE("the automatic interval counts buffers, not contents of the tier") {
  const auto architecture = models::make_gpt(small_gpt(16));
  auto options = small_run();
  options.policy = Policy::gpipe;
  options.batch_size = 64;
  options.microbatch_size = 8;
  options.recompute_auto = true;
  const auto on_device = plan_of(architecture, options, 0);
  options.tiers.activations = TierKind::host;
  const auto away = plan_of(architecture, options, 0);
  CHECK(away.recompute < on_device.recompute);
}

TEST_CASE("checkpoints in a tier are refused without recomputation") {
  const auto architecture = models::make_gpt(small_gpt());
  auto options = small_run();
  options.tiers.activations = TierKind::host;
  CHECK_THROWS_WITH_AS((void)plan_of(architecture, options, 0), doctest::Contains("add `recompute` auto"), Error);
}
