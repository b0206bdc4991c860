#include "actors/schedule/chunk_schedule.hpp"

#include "tests/test.hpp"

using namespace ranvier::actors;
using Bucket = ChunkSchedule::Bucket;
using Chunk = ChunkSchedule::Chunk;

TEST_CASE("units are scheduled from the back, units that another stage shares last and in separate chunks") {
  const std::vector<ChunkUnit> units = {{0, true, {10}}, {0, false, {10}}, {1, false, {10}}, {2, false, {10}}};
  const ChunkSchedule schedule = chunk_schedule(units, {.chunk_buckets = 2, .bundle_bytes = 10});
  REQUIRE(schedule.chunks == std::vector<Chunk>{{0, 2}, {2, 3}, {3, 4}});
  CHECK(schedule.buckets(schedule.chunks[0]) == std::vector<Bucket>{{3, 0}, {2, 0}});
  CHECK(schedule.buckets(schedule.chunks[1]) == std::vector<Bucket>{{1, 0}});
  CHECK(schedule.buckets(schedule.chunks[2]) == std::vector<Bucket>{{0, 0}});
  CHECK(schedule.from_the_front() == std::vector<std::size_t>{2, 3, 1, 0});
}

TEST_CASE("a chunk has the requested number of buckets, of one unit or of several") {
  const std::vector<ChunkUnit> units = {{0, false, {10, 10, 10}}, {1, false, {10, 10}}};
  const auto chunks = [&](std::size_t k) {
    const ChunkSchedule schedule = chunk_schedule(units, {.chunk_buckets = k, .bundle_bytes = 1});
    std::vector<std::vector<Bucket>> all;
    for (const Chunk& chunk : schedule.chunks) all.push_back(schedule.buckets(chunk));
    return all;
  };
  CHECK(chunks(1) == std::vector<std::vector<Bucket>>{{{1, 0}}, {{1, 1}}, {{0, 0}}, {{0, 1}}, {{0, 2}}});
  CHECK(chunks(2) == std::vector<std::vector<Bucket>>{{{1, 0}, {1, 1}}, {{0, 0}, {0, 1}}, {{0, 2}}});
  CHECK(chunks(3) == std::vector<std::vector<Bucket>>{{{1, 0}, {1, 1}, {0, 0}}, {{0, 1}, {0, 2}}});
  CHECK(chunks(ChunkOptions::all).size() == 1);
}

TEST_CASE("small buckets share a bundle, and count as one bucket if together they reach the size of a large one") {
  const std::vector<ChunkUnit> units = {{0, false, {3}}, {1, false, {3}}, {2, false, {10}},
                                        {3, false, {4}}, {4, false, {4}}, {5, false, {4}}};
  const ChunkSchedule schedule = chunk_schedule(units, {.chunk_buckets = 1, .bundle_bytes = 10});
  REQUIRE(schedule.bundles.size() == 3);
  CHECK(schedule.bundles[0].buckets == std::vector<Bucket>{{5, 0}, {4, 0}, {3, 0}});
  CHECK(schedule.bundles[1].buckets == std::vector<Bucket>{{2, 0}});
  CHECK(schedule.bundles[2].buckets == std::vector<Bucket>{{1, 0}, {0, 0}});
  CHECK(schedule.bundles[2].front == 0);
}

TEST_CASE("a stage without units has no chunk") {
  CHECK(chunk_schedule({}, {}).chunks.empty());
  CHECK(chunk_schedule(std::vector<ChunkUnit>{{0, false, {}}}, {}).bundles.empty());
}

TEST_CASE("every bucket is in one bundle, every bundle in one chunk, and none exceeds the requested size") {
  for (const std::uint64_t seed : ranvier::test::seeds(500)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<ChunkUnit> units(random() % 8);
    std::set<std::pair<std::size_t, std::size_t>> missing;
    for (std::size_t u = 0; u < units.size(); ++u) {
      units[u] = {random() % 6, random() % 4 == 0, {}};
      for (std::size_t b = random() % 5; b-- > 0;) units[u].bucket_bytes.push_back(1 + random() % 30);
      for (std::size_t b = 0; b < units[u].bucket_bytes.size(); ++b) missing.insert({u, b});
    }
    const ChunkOptions options{.chunk_buckets = random() % 4, .bundle_bytes = 1 + random() % 40};
    const ChunkSchedule schedule = chunk_schedule(units, options);
    std::size_t bundles = 0;
    for (const Chunk& chunk : schedule.chunks) {
      CHECK(chunk.begin == bundles);
      CHECK(chunk.end > chunk.begin);
      if (options.chunk_buckets != ChunkOptions::all) CHECK(chunk.end - chunk.begin <= options.chunk_buckets);
      bundles = chunk.end;
      std::set<std::size_t> of_tied;
      bool has_others = false;
      for (const Bucket& bucket : schedule.buckets(chunk)) {
        CHECK(missing.erase({bucket.unit, bucket.index}) == 1);
        if (units[bucket.unit].tied) {
          of_tied.insert(bucket.unit);
        } else {
          has_others = true;
        }
      }
      CHECK(of_tied.size() + (has_others ? 1 : 0) == 1);
    }
    CHECK(bundles == schedule.bundles.size());
    CHECK(missing.empty());
    for (const ChunkSchedule::Bundle& bundle : schedule.bundles) {
      std::size_t before_last = 0;
      for (std::size_t b = 0; b + 1 < bundle.buckets.size(); ++b)
        before_last += units[bundle.buckets[b].unit].bucket_bytes[bundle.buckets[b].index];
      CHECK(before_last < options.bundle_bytes);
    }
  }
}
