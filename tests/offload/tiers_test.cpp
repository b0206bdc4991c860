#include "offload/tiers.hpp"

#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/offload/blocks.hpp"
#include "tests/offload/transfers.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;
using namespace ranvier::runtime;

namespace {

/// Runs of random lengths and alignments that together have `bytes`, one after another in `memory`, which has space for
/// gaps between them.
Tiers::StridedLayout scattered(std::vector<std::byte>& memory, std::size_t bytes, std::mt19937_64& random) {
  Tiers::StridedLayout runs;
  std::size_t at = random() % 64;
  while (bytes > 0) {
    const std::size_t length = std::min<std::size_t>(bytes, 1 + random() % 300000);
    runs.emplace_back(memory.data() + at, length);
    at += length + random() % 64;
    bytes -= length;
  }
  return runs;
}

}  // namespace

TEST_CASE("only files with checksums take host memory for them") {
  for (const bool checksums : {false, true}) {
    TierPlan tier_plan;
    MemoryPlan plan;
    tier_plan.reserve(TierKind::nvme, MemoryKind::optimizer, "states", 40960, plan);
    tier_plan.finish({.directories = {"disk"}, .checksums = checksums}, plan);
    CHECK((plan.bytes(MemorySpace::host) > 0) == checksums);
  }
}

TEST_CASE("tiers return what was stored from scattered runs of memory, in host memory and in files") {
  for (const std::uint64_t seed : test::seeds(test::sanitized ? 1 : 3)) {
    for (const bool at_once : {true, false}) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      const ranvier::tests::TemporaryFolder folder;
      const auto device = at_once ? make_inline_device() : make_cpu_device({});
      TierPlan tier_plan;
      MemoryPlan plan;
      std::vector<TierRegion> regions;
      const std::vector<std::size_t> sizes = {1, 4096, 40960, std::size_t{3} << 20, 5000001};
      for (const TierKind kind : {TierKind::host, TierKind::nvme})
        for (const std::size_t bytes : sizes)
          regions.push_back(tier_plan.reserve(kind, MemoryKind::optimizer, "states", bytes, plan));
      const FileOptions files{.directories = {folder.path()}, .checksums = true};
      tier_plan.finish(files, plan);
      CHECK(plan.bytes(MemorySpace::nvme) == tier_plan.bytes(TierKind::nvme));
      CHECK(plan.bytes(MemorySpace::pinned) ==
            tier_plan.bytes(TierKind::host) + TierPlan::staging_slots * TierPlan::staging_slot_bytes);
      // Large regions start on a MiB; items of a plan on 64 bytes.
      CHECK(tier_plan.file_space() == (4 << 20) + Tier::whole_blocks(5000001));
      CHECK(plan.bytes(MemorySpace::host) >= tier_plan.bytes(TierKind::nvme) / 4096 * 8);
      CHECK(plan.bytes(MemorySpace::host) <= (tier_plan.bytes(TierKind::nvme) + (2 << 20)) / 4096 * 8 + 64);

      AsioLoop loop;
      const Arena arena(*device, plan);
      Tiers tiers(loop, *device, tier_plan, files, arena, 0);
      std::vector<std::vector<std::byte>> expected;
      for (int round = 0; round < 2; ++round) {
        expected.clear();
        std::vector<std::vector<std::byte>> memory;
        for (std::size_t r = 0; r < regions.size(); ++r) {
          const std::size_t bytes = sizes[r % sizes.size()];
          auto& values = expected.emplace_back(bytes);
          for (auto& value : values) value = static_cast<std::byte>(random());
          memory.emplace_back(2 * bytes + (1 << 16));
        }
        run_transfers(loop, regions.size(), [&](const Handler& done) {
          for (std::size_t r = 0; r < regions.size(); ++r) {
            Tiers::StridedLayout runs;
            // Short runs at random locations, so that no run is a multiple of a block.
            std::size_t at = 1, from = 0;
            while (from < expected[r].size()) {
              const std::size_t length =
                  std::min<std::size_t>(expected[r].size() - from, 50000 + random() % 100000);
              std::memcpy(memory[r].data() + at, expected[r].data() + from, length);
              runs.emplace_back(memory[r].data() + at, length);
              at += length + 3;
              from += length;
            }
            tiers.move(IoKind::write, regions[r], 0, runs, done);
          }
        });
        std::vector<std::vector<std::byte>> found(regions.size());
        std::vector<Tiers::StridedLayout> runs(regions.size());
        run_transfers(loop, regions.size(), [&](const Handler& done) {
          for (std::size_t r = 0; r < regions.size(); ++r) {
            found[r].resize(2 * expected[r].size() + (1 << 16));
            runs[r] = scattered(found[r], expected[r].size(), random);
            tiers.move(IoKind::read, regions[r], 0, runs[r], done);
          }
        });
        CHECK_FALSE(loop.pending_work().any());
        for (std::size_t r = 0; r < regions.size(); ++r) {
          std::size_t at = 0;
          bool same = true;
          for (const auto& run : runs[r]) {
            same = same && std::memcmp(run.data(), expected[r].data() + at, run.size()) == 0;
            at += run.size();
          }
          CHECK(same);
        }
      }
      CHECK(tiers.memory(regions[2]).size() == 40960);
      CHECK(std::memcmp(tiers.memory(regions[2]).data(), expected[2].data(), 40960) == 0);
      CHECK_THROWS_AS((void)tiers.memory(regions[7]), Error);
      std::vector<std::byte> memory(8192);
      CHECK_THROWS_AS(tiers.move(IoKind::read, regions[0], 0, {memory}, [] {}), Error);  // larger than the region
      CHECK_THROWS_AS(tiers.move(IoKind::write, regions[3], 64, {std::span(memory).first(1)}, [] {}),
                      Error);  // unaligned
    }
  }
}

TEST_CASE_FIXTURE(ranvier::tests::InFolder,
                  "complete blocks are read into pinned memory from either tier, and only files have spans") {
  const auto device = make_cpu_device({});
  TierPlan tier_plan;
  MemoryPlan plan;
  const TierRegion host = tier_plan.reserve(TierKind::host, MemoryKind::parameters, "a", 12288, plan);
  const TierRegion file = tier_plan.reserve(TierKind::nvme, MemoryKind::parameters, "b", 12288, plan);
  const MemoryId ahead = plan.add({MemoryKind::workspace, MemorySpace::pinned, "read ahead", 8192, 2});
  const FileOptions files{.directories = {folder.path()}};
  tier_plan.finish(files, plan);
  AsioLoop loop;
  const Arena arena(*device, plan);
  Tiers tiers(loop, *device, tier_plan, files, arena, 0);
  Trace trace(0, loop);
  tiers.record(trace);
  Blocks stored = Blocks::random(8192, 5);
  for (const auto& [region, slot] : {std::pair{host, 0}, {file, 1}}) {
    std::byte* const memory = arena.slot(ahead, static_cast<std::size_t>(slot));
    run_transfers(loop, 1, [&, to = region](const Handler& done) {
      tiers.move(IoKind::write, to, 4096, {stored.span()}, done);
    });
    run_transfers(loop, 1, [&, from = region](const Handler& done) {
      tiers.move(IoKind::read, from, 4096, {{memory, 8192}}, done);
    });
    CHECK(std::memcmp(memory, stored.data(), 8192) == 0);
  }
  const auto spans = trace.spans();
  REQUIRE(spans.size() == 2);
  for (const Trace::Span& span : spans) {
    CHECK(span.lane == Trace::Lane::files);
    CHECK(span.kind == SpanKind::load);
    CHECK(span.index == static_cast<int>(file.index));
    CHECK(span.end_ns > span.begin_ns);
  }
  CHECK(trace.seconds_of_files_alone() == doctest::Approx(trace.seconds(SpanKind::load)));
}
