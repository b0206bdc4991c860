#include "offload/host_tier.hpp"

#include "runtime/device.hpp"
#include "runtime/error.hpp"
#include "tests/offload/tier_contract.hpp"
#include "tests/seeds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <span>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;
using namespace ranvier::runtime;

TEST_CASE("a host tier keeps what was stored, on every device and in either space") {
  for (const std::uint64_t seed : test::seeds(3)) {
    for (const bool at_once : {true, false}) {
      for (const MemorySpace space : {MemorySpace::pinned, MemorySpace::host}) {
        const auto device = at_once ? make_inline_device() : make_cpu_device({});
        const auto fetches = device->make_stream("fetch", StreamWidth::one);
        const auto stores = device->make_stream("store", StreamWidth::one);
        AsioLoop loop;
        std::optional<Arena> arena;
        HostTier tier(loop, {*fetches, *stores}, space);
        keeps_what_was_stored(
            loop, tier,
            [&] {
              MemoryPlan plan;
              tier.plan(plan);
              CHECK(plan.bytes(space) == tier.reserved_bytes());
              CHECK(plan.bytes(MemoryKind::optimizer) == tier.reserved_bytes());
              arena.emplace(*device, plan);
              tier.start(*arena);
            },
            seed);
      }
    }
  }
}

TEST_CASE("the memory of a host tier's region is what is stored there") {
  const auto device = make_inline_device();
  const auto stream = device->make_stream("copy", StreamWidth::one);
  AsioLoop loop;
  HostTier tier(loop, {*stream, *stream});
  tier.reserve(MemoryKind::optimizer, "first", 4096);
  const Region second = tier.reserve(MemoryKind::optimizer, "second", 9000);
  CHECK_THROWS_AS((void)tier.memory(second), Error);
  MemoryPlan plan;
  tier.plan(plan);
  const Arena arena(*device, plan);
  tier.start(arena);
  const std::span<std::byte> memory = tier.memory(second);
  REQUIRE(memory.size() == 3 * 4096);
  const Blocks stored = Blocks::random(4096, 1);
  run_transfers(loop, 1, [&](const Handler& done) { tier.store(second, 8192, stored.span(), done); });
  CHECK(std::equal(stored.span().begin(), stored.span().end(), memory.begin() + 8192));
  CHECK_THROWS_AS((void)tier.memory({2}), Error);
}

TEST_CASE("a host tier whose regions are not all in the plan does not start") {
  const auto device = make_inline_device();
  const auto stream = device->make_stream("copy", StreamWidth::one);
  AsioLoop loop;
  HostTier tier(loop, {*stream, *stream});
  MemoryPlan plan;
  tier.reserve(MemoryKind::optimizer, "first", 4096);
  tier.plan(plan);
  tier.reserve(MemoryKind::optimizer, "second", 4096);
  const Arena arena(*device, plan);
  CHECK_THROWS_AS(tier.start(arena), Error);
  CHECK_THROWS_AS(HostTier(loop, {*stream, *stream}, MemorySpace::device), Error);
}
