// The location of activation checkpoints must not change a bit, regardless of the order of passes.
#include "actors/pipeline/activation_checkpoints.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using actors::TierKind;

namespace {

constexpr std::array policies{Policy::message_driven, Policy::one_f_one_b, Policy::gpipe};

actors::TrainerOptions long_row() {
  auto options = small_run();
  options.batch_size = 7;  // the last microbatch is shorter
  options.steps = 3;
  options.eval_every = 2;
  options.eval_samples = options.batch_size;
  return options;
}

}  // namespace

TEST_CASE(
    "checkpoints in host memory give the same bits under every schedule, limit, interval and order of messages") {
  auto gpt = small_gpt(6);
  gpt.dropout = 0.1f;
  auto options = long_row();
  ReferenceJob on_device(gpt, options);
  options.tiers.activations = TierKind::host;
  std::uint64_t seed = 0;
  tests::Share share(4, 16);
  for (const Policy policy : policies) {
    for (const int g_inter : {1, 2, 3}) {
      for (const int limit : {1, 3, 4}) {
        for (const int recompute : {1, 2, 3}) {
          INFO("policy ", actors::to_string(policy), ", g_inter ", g_inter, ", limit ", limit, ", recompute ",
               recompute);
          options.policy = policy;
          options.grid.g_inter = g_inter;
          options.pipeline_limit = limit;
          options.recompute = recompute;
          for (int order = 0; order < 6; ++order, ++seed) {
            if (!share.takes()) continue;
            options.tiers.checkpoint_places = 2 + static_cast<int>(seed / 2 % 4);
            check_trains_like(on_device, gpt, options, seed);
          }
        }
      }
    }
  }
}

TEST_CASE("checkpoints in host memory combine with every sharding and with half precision") {
  auto gpt = small_gpt(5);
  gpt.precision = {runtime::DType::bf16, runtime::DType::f32};
  std::uint64_t seed = 100;
  for (const char* name : {"zero2", "zero3", "mics", "paro-nig", "zero++"}) {
    for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b}) {
      INFO("name ", std::string(name), ", policy ", actors::to_string(policy));
      auto options = small_run({2, 2}, name);
      options.precision = gpt.precision;
      options.batch_size = 16;
      options.group_size = 2;
      options.policy = policy;
      ReferenceJob on_device(gpt, options);
      options.tiers.activations = TierKind::host;
      options.tiers.optimizer = TierKind::host;
      options.tiers.bucket_elements = 200;
      options.recompute = 1;
      for (int order = 0; order < effort(2, 6, 1); ++order) check_trains_like(on_device, gpt, options, ++seed);
    }
  }
}

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
