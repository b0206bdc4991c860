// The contract of every tier, as one test body.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/offload/blocks.hpp"
#include "tests/test.hpp"

namespace ranvier::offload::tests {

/// Runs `begin`, which must call its argument once for each of `count` completions, and the loop until then.
inline void run_transfers(runtime::AsioLoop& loop, std::size_t count,
                          const std::function<void(runtime::Handler done)>& begin) {
  std::size_t left = count;
  begin([&] {
    if (--left == 0) loop.stop();
  });
  CHECK(left == count);  // no handler is called before the loop runs
  if (count != 0) loop.run();
}

/// Splits [0, bytes) into ranges of random numbers of complete blocks, in random order.
inline std::vector<std::pair<std::size_t, std::size_t>> random_ranges(std::size_t bytes, std::size_t max_blocks,
                                                                      std::mt19937_64& random) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t length = std::min(bytes - at, (1 + random() % max_blocks) * Tier::block_bytes);
    ranges.emplace_back(at, length);
    at += length;
  }
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

/// `start` starts the tier after regions are reserved.
inline void keeps_what_was_stored(runtime::AsioLoop& loop, Tier& tier, const std::function<void()>& start,
                                  std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::size_t> sizes = {0, 1, 4096, 40961, 300000, 65536, 500001};
  std::vector<Region> regions;
  for (const std::size_t bytes : sizes)
    regions.push_back(tier.reserve(runtime::MemoryKind::optimizer, "states", bytes));
  start();

  const auto fetch_all = [&](int noise) {
    std::vector<Blocks> found;
    for (const std::size_t bytes : sizes) found.emplace_back(bytes, noise);
    std::vector<std::pair<std::size_t, std::pair<std::size_t, std::size_t>>> todo;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (const auto& range : random_ranges(found[i].span().size(), 40, random)) todo.emplace_back(i, range);
    std::shuffle(todo.begin(), todo.end(), random);
    run_transfers(loop, todo.size(), [&](const runtime::Handler& done) {
      for (const auto& [i, range] : todo)
        tier.fetch(regions[i], range.first, found[i].span(range.first, range.second), done);
    });
    return found;
  };

  std::vector<Blocks> expected;
  for (const std::size_t bytes : sizes) expected.emplace_back(bytes, 0);
  CHECK(fetch_all(0x5A) == expected);  // zero at first
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<std::size_t, std::pair<std::size_t, std::size_t>>> todo;
    std::vector<Blocks> sources;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sources.push_back(Blocks::random(sizes[i], random()));
      for (const auto& range : random_ranges(sources[i].span().size(), 40, random)) {
        if (random() % 4 == 0) continue;  // some ranges stay unchanged
        todo.emplace_back(i, range);
        std::copy_n(sources[i].data() + range.first, range.second, expected[i].data() + range.first);
      }
    }
    std::shuffle(todo.begin(), todo.end(), random);
    run_transfers(loop, todo.size(), [&](const runtime::Handler& done) {
      for (const auto& [i, range] : todo)
        tier.store(regions[i], range.first, sources[i].span(range.first, range.second), done);
    });
    CHECK(fetch_all(0xA5) == expected);
  }

  Blocks memory(4096);
  run_transfers(loop, 2, [&](const runtime::Handler& done) {  // empty transfers, too
    tier.fetch(regions[0], 0, memory.span(0, 0), done);
    tier.store(regions[4], 4096, memory.span(0, 0), done);
  });
  const auto none = [] {};
  CHECK_THROWS_AS(tier.fetch(regions[2], 4096, memory.span(), none), Error);       // past its end
  CHECK_THROWS_AS(tier.fetch(regions[4], 64, memory.span(), none), Error);         // not aligned to a block
  CHECK_THROWS_AS(tier.store(regions[4], 0, memory.span(64, 4032), none), Error);  // nor is this
  CHECK_THROWS_AS(tier.store(regions[4], 0, memory.span(0, 100), none), Error);    // not complete blocks
  CHECK_THROWS_AS(tier.fetch({sizes.size()}, 0, memory.span(), none), Error);      // never reserved
  CHECK_THROWS_AS((void)tier.reserve(runtime::MemoryKind::optimizer, "late", 1), Error);
}

}  // namespace ranvier::offload::tests
