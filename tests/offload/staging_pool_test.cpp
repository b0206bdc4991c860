#include "offload/staging_pool.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::runtime;

TEST_CASE("a pool's slots are equal and in complete blocks") {
  Simulation simulation(1, {});
  StagingPool pool(simulation.loop(0), "staging", 5000, 3);
  const auto device = make_inline_device();
  MemoryPlan plan;
  plan.add({MemoryKind::messages, MemorySpace::pinned, "odd", 65, 1});
  const auto slots = plan.add({MemoryKind::workspace, MemorySpace::pinned, "slots", Tier::whole_blocks(5000), 3});
  const Arena arena(*device, plan);
  CHECK_THROWS_AS((void)pool.slot(0), Error);
  pool.start(arena, slots);
  for (std::size_t slot = 0; slot < 3; ++slot) {
    CHECK(pool.slot(slot).size() == 8192);
    CHECK(reinterpret_cast<std::uintptr_t>(pool.slot(slot).data()) % Tier::block_bytes == 0);
  }
  CHECK(pool.slot(1).data() == pool.slot(0).data() + 8192);
  CHECK_THROWS_AS(StagingPool(simulation.loop(0), "none", 4096, 0), Error);
}

TEST_CASE("slots are granted in the order of requests, one each, and never more than exist") {
  for (const std::uint64_t seed : test::seeds(20)) {
    CAPTURE(seed);
    Simulation simulation(1, {.seed = seed});
    EventLoop& loop = simulation.loop(0);
    constexpr int asks = 100;
    std::mt19937_64 random(seed);
    StagingPool pool(loop, "staging", 4096, 1 + seed % 4);
    std::vector<int> granted;
    std::vector<bool> taken(pool.slots(), false);
    std::ptrdiff_t most = 0;
    for (int ask = 0; ask < asks; ++ask) {
      pool.acquire([&, ask](std::size_t slot) {
        REQUIRE(!taken.at(slot));
        taken[slot] = true;
        most = std::max(most, std::count(taken.begin(), taken.end(), true));
        granted.push_back(ask);
        loop.after(std::chrono::microseconds(random() % 100), [&, slot] {
          taken[slot] = false;
          pool.release(slot);
          if (granted.size() == asks) loop.stop();
        });
      });
      CHECK(granted.empty());  // acquire calls no handler
    }
    simulation.run();
    for (int ask = 0; ask < asks; ++ask) CHECK(granted[ask] == ask);
    CHECK(most == static_cast<std::ptrdiff_t>(pool.slots()));
  }
}

TEST_CASE("a slot that was not acquired cannot be released") {
  Simulation simulation(1, {});
  StagingPool pool(simulation.loop(0), "staging", 4096, 2);
  CHECK_THROWS_AS(pool.release(0), Error);
  CHECK_THROWS_AS(pool.release(2), Error);
}
