// Where optimizer states live must not change a bit.
#include "actors/state_tier.hpp"
#include "tests/actors/same_bits.hpp"

#include <doctest/doctest.h>

using namespace ranvier;
using actors::TierKind;
using tests::check_same_bits;
using tests::run_simulated;
using tests::small_gpt;
using tests::small_run;

namespace {

// Sanitizers watch the same code for a shorter time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int orders = 2;
#else
constexpr int orders = 10;
#endif

}  // namespace

TEST_CASE("states in host memory train the same bits, whatever the bucket, with and without clipping") {
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    auto gpt = small_gpt();
    gpt.precision = {dtype, runtime::DType::f32};
    for (const double clip : {0.0, 0.5}) {
      auto options = small_run();
      options.steps = 4;
      options.eval_every = 2;
      options.eval_batches = 1;
      options.precision = gpt.precision;
      options.clip = clip;
      options.grid = {2, 2};
      const auto on_device = run_simulated(gpt, options, 1);
      options.tiers.optimizer = TierKind::host;
      for (const std::size_t bucket : {33, 256, 1000, 1 << 20}) {
        for (const std::size_t depth : {1, 2, 3}) {
          CAPTURE(bucket);
          CAPTURE(depth);
          options.tiers.bucket_elements = bucket;
          options.tiers.depth = depth;
          check_same_bits(on_device, run_simulated(gpt, options, 7));
        }
      }
    }
  }
}

TEST_CASE("a step that overflows leaves states in host memory alone") {
  auto gpt = small_gpt();
  gpt.precision = {runtime::DType::f16, runtime::DType::f32};
  auto options = small_run();
  options.steps = 5;
  options.precision = gpt.precision;
  options.loss_scale = {.scale = 1024, .dynamic = true};
  options.grid = {2, 2};
  options.fault =
      actors::TrainerOptions::Fault{.rank = 1, .step = 3, .kind = actors::TrainerOptions::Fault::Kind::overflow};
  const auto on_device = run_simulated(gpt, options, 1);
  CHECK(on_device.steps[2].skipped);
  options.tiers = {.optimizer = TierKind::host, .bucket_elements = 100};
  check_same_bits(on_device, run_simulated(gpt, options, 3));
}

TEST_CASE("states in host memory combine with every sharding, under any order of messages") {
  auto gpt = small_gpt();
  gpt.precision = {runtime::DType::bf16, runtime::DType::f32};
  std::uint64_t seed = 0;
  for (const auto& [g_inter, g_data] : {std::pair{1, 4}, {3, 2}}) {
    for (const char* name : {"zero1", "zero2", "zero3", "mics", "paro-igg", "paro-iig", "paro-nig", "zero++", "GIN",
                             "IGN", "NGI", "GNN"}) {
      CAPTURE(std::string(name));
      CAPTURE(g_inter);
      auto options = small_run();
      options.steps = 3;
      options.precision = gpt.precision;
      options.grid = {g_inter, g_data};
      options.group_size = 2;
      options.sharding = collectives::parse_sharding(name);
      const auto on_device = run_simulated(gpt, options, 1);
      options.tiers = {.optimizer = TierKind::host, .bucket_elements = 200, .depth = 2};
      for (int i = 0; i < orders; ++i) {
        const auto device = i % 2 == 0 ? tests::Devices::delayed : tests::Devices::inline_;
        check_same_bits(on_device, run_simulated(gpt, options, ++seed, {}, 1 << 20, device));
      }
    }
  }
}

TEST_CASE("off the device a rank keeps buckets only, and the tier what the table says") {
  const auto architecture = models::make_gpt(small_gpt());
  const tests::RandomTokens tokens(8, 37);
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    auto options = small_run();
    options.precision = {dtype, runtime::DType::f32};
    options.tiers = {.optimizer = TierKind::host, .bucket_elements = 256, .depth = 3};
    const auto plan = actors::plan_rank(architecture, tokens.sample_bytes(), options, 0);
    CHECK(plan.memory.bytes(runtime::MemorySpace::device, runtime::MemoryKind::optimizer) == 3 * 4096);  // 256 elements of at most 12 bytes
    // A record is rounded up to a whole block, and 256 elements of at most 12 bytes need no more than one.
    std::size_t records = 0;
    for (const actors::UnitState& unit : plan.states->all()) records += (unit.optimizer.count + 255) / 256;
    CHECK(plan.tiers.bytes(TierKind::host) == records * 4096);
  }
}
