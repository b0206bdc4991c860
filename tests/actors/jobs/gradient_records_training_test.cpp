// The location of accumulated gradients must not change a bit of the training result.
#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::TierKind;

TEST_CASE("gradients in host memory combine with every sharding and grid, under any order of messages") {
  std::uint64_t seed = 0;
  tests::Share share(8, 32);
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    auto gpt = small_gpt();
    gpt.precision = {dtype, dtype};
    for (const auto& [g_inter, g_data] : {std::pair{1, 1}, {1, 4}, {2, 2}, {3, 2}}) {
      for (const char* name : shardings) {
        INFO("name ", std::string(name), ", g_inter ", g_inter, ", g_data ", g_data);
        auto options = small_run({g_inter, g_data}, name);
        options.steps = 3;
        options.precision = gpt.precision;
        options.microbatch_size = 1;
        options.clip = g_inter == 2 ? 0.5 : 0;  // without clipping, chunks are updated as they are reduced
        options.group_size = g_data > 1 ? 2 : 1;
        ReferenceJob on_device(gpt, options);
        for (int i = 0; i < 6; ++i, ++seed) {
          if (!share.takes()) continue;
          options.tiers = {.parameters = i % 5 == 4 ? TierKind::host : TierKind::device,
                           .gradients = TierKind::host,
                           .optimizer = i % 3 == 2 ? TierKind::host : TierKind::device,
                           .bucket_elements = i % 3 == 0 ? 200u : 2000u,
                           .depth = 1u + static_cast<unsigned>(i) % 3};
          options.prefetch = i % 3;
          check_trains_like(on_device, gpt, options, seed);
        }
      }
    }
  }
}

TEST_CASE("gradients in host memory are clipped, and dropped after an overflow, as on the device") {
  auto gpt = small_gpt();
  gpt.precision = {runtime::DType::f16, runtime::DType::f32};
  for (const double clip : {0.0, 0.5}) {
    for (const char* name : {"ddp", "zero2", "mics"}) {
      CAPTURE(std::string(name));
      auto options = small_run({2, 2}, name);
      options.steps = 5;
      options.precision = gpt.precision;
      options.clip = clip;
      options.loss_scale = {.scale = 1024, .dynamic = true};
      options.group_size = 2;
      options.fault = overflow(1, 3);
      const auto on_device = run_simulated(gpt, options, 1);
      CHECK(on_device.steps[2].skipped);
      for (const std::size_t bucket : {33, 700, 1 << 20}) {
        options.tiers = {.gradients = TierKind::host, .bucket_elements = bucket};
        check_same_bits(on_device, run_simulated(gpt, options, 3, Devices::delayed));
      }
    }
  }
}

TEST_CASE("updates on the host of gradients in host memory give the bits of the device") {
  std::uint64_t seed = 0;
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    auto gpt = small_gpt();
    gpt.precision = {dtype, dtype};
    for (const double clip : {0.0, 0.5}) {
      for (const char* name : {"ddp", "zero2", "mics", "NGI"}) {
        INFO("name ", std::string(name), ", clip ", clip);
        auto options = small_run({2, 2}, name);
        options.precision = gpt.precision;
        options.clip = clip;
        options.group_size = 2;
        options.loss_scale = {.scale = 1024, .dynamic = clip > 0};
        if (clip > 0) options.fault = overflow(1, 2);
        const auto on_device = run_simulated(gpt, options, 1);
        CHECK(on_device.steps[1].skipped == (clip > 0));
        for (const std::size_t bucket : {200, 1 << 20}) {
          const bool flips = ++seed % 2 == 0 && dtype == runtime::DType::bf16;
          options.tiers = {.parameters = seed % 3 == 0 ? TierKind::host : TierKind::device,
                           .gradients = TierKind::host,
                           .optimizer = TierKind::host,
                           .step = actors::StepLocation::host,
                           .commit = flips ? actors::Commit::flip : actors::Commit::wait,
                           .bucket_elements = bucket};
          check_same_bits(on_device, run_simulated(gpt, options, seed, Devices::delayed));
        }
      }
    }
  }
}

TEST_CASE("an update on the host needs no memory for gradients in host memory, unless they are gathered") {
  const auto architecture = models::make_gpt(small_gpt());
  auto options = small_run({2, 2});
  options.group_size = 1;
  options.tiers = {.gradients = TierKind::host, .optimizer = TierKind::host, .step = actors::StepLocation::host};
  for (const char* name : {"ddp", "zero2", "NGI"}) {
    CAPTURE(std::string(name));
    options.sharding = collectives::parse_sharding(name);
    const bool gathers = std::string(name) == "NGI";
    const auto plan = plan_of(architecture, options, 0);
    CHECK(plan.flow.gather_gradient.empty() == !gathers);
    std::size_t items = 0;
    for (const runtime::MemoryItem& item : plan.memory.items()) {
      if (item.name != "gradients for the optimizer" && item.name != "gradients for the step on the host") continue;
      ++items;
      CHECK((item.slots > 0) == gathers);
    }
    CHECK(items == 2);
  }
}

TEST_CASE("with gradients in a tier the sums are planned there, and the device has one chunk and a few buffers") {
  const auto architecture = models::make_gpt(small_gpt(12));
  auto options = small_run();
  const auto on_device = plan_of(architecture, options, 0);
  options.tiers.gradients = TierKind::host;
  const auto in_tier = plan_of(architecture, options, 0);
  std::size_t sums = 0, largest_chunk = 0;
  for (const actors::UnitState& unit : on_device.states->all())
    sums += unit.gradients.size() * unit.gradients[0].bytes();
  for (const actors::ChunkSchedule::Chunk& chunk : in_tier.chunks.chunks) {
    std::size_t bytes = 0;
    for (const auto& [u, index] : in_tier.chunks.buckets(chunk)) {
      const actors::UnitState& unit = in_tier.states->all()[u];
      bytes += offload::Tier::whole_blocks(unit.cut.elements(unit.gradients[0].range, index) * sizeof(float));
    }
    largest_chunk = std::max(largest_chunk, bytes);
  }
  const std::size_t places = std::min<std::size_t>(3, in_tier.chunks.chunks.size());
  using runtime::MemoryKind;
  using runtime::MemorySpace;
  CHECK(on_device.memory.bytes(MemorySpace::device, MemoryKind::gradients) >= sums);
  CHECK(in_tier.memory.bytes(MemorySpace::pinned, MemoryKind::gradients) >= sums);
  CHECK(in_tier.memory.bytes(MemorySpace::device, MemoryKind::gradients) == places * largest_chunk);
}
