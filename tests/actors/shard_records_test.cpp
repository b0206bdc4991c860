#include "actors/states/shard_records.hpp"

#include "offload/tier.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::BucketPartition;
using actors::ShardRecords;
using offload::Tier;
using runtime::DType;

TEST_CASE("records have the elements of their bucket, and they and their arrays do not overlap") {
  for (const std::vector<DType>& dtypes :
       {std::vector{DType::f32, DType::bf16, DType::f64}, std::vector{DType::bf16, DType::i8, DType::u8}})
    for (const std::size_t piece : {0, 1, 63, 512, 1000, 1024, 5000})
      for (const int pieces : {1, 3})
        for (const std::size_t bucket_elements : {1, 1024, 4999, 5000, 1 << 24}) {
          const auto held = static_cast<std::size_t>(pieces);
          const std::size_t elements = piece * 4;
          const BucketPartition cut(elements, 4, bucket_elements, held);
          const ShardRecords records(cut, {piece, piece * held}, dtypes);
          CHECK(records.buckets() == cut.buckets());
          std::size_t covered = 0, used = 0;
          for (std::size_t bucket = 0; bucket < records.buckets(); ++bucket) {
            const std::size_t n = records.elements(bucket);
            CHECK(n > 0);
            CHECK(n <= std::max(bucket_elements, held * BucketPartition::granule));
            covered += n;
            const auto bytes = [&](std::size_t array) {
              return is_in_blocks(dtypes[array]) ? (n + 255) / 256 * 260 : n * size_of(dtypes[array]);
            };
            CHECK(records.record_offset(bucket) >= used);
            CHECK(records.record_offset(bucket) % Tier::block_bytes == 0);
            CHECK(records.array_offset(bucket, 0) == 0);
            CHECK(records.array_offset(bucket, 1) >= bytes(0));
            CHECK(records.array_offset(bucket, 2) >= records.array_offset(bucket, 1) + bytes(1));
            CHECK(records.array_offset(bucket, 1) % 64 == 0);
            CHECK(records.array_offset(bucket, 2) % 64 == 0);
            CHECK(records.record_bytes(bucket) >= records.array_offset(bucket, 2) + bytes(2));
            CHECK(records.record_bytes(bucket) <= records.slot_bytes());
            used = records.record_offset(bucket) + records.record_bytes(bucket);
          }
          CHECK(covered == piece * held);
          CHECK(records.region_bytes() == used);
        }
  CHECK(ShardRecords(BucketPartition(2048, 4, 512, 1), {}, {DType::f32}).buckets() == 0);  // empty range
}

TEST_CASE("arrays in blocks take whole blocks of each bucket") {
  const ShardRecords records(BucketPartition(1000, 1, 512, 1), {0, 1000}, {DType::bf16, DType::i8, DType::u8});
  CHECK(records.buckets() == 2);
  for (const std::size_t bucket : {0u, 1u}) {  // 512 elements, and 488: two blocks each
    CHECK(records.array_offset(bucket, 1) == 1024);
    CHECK(records.array_offset(bucket, 2) == 1024 + 9 * 64);
    CHECK(records.record_bytes(bucket) == 4096);
  }
}

TEST_CASE("the last array has only some elements, in the same memory of each bucket on all ranks") {
  const std::vector<collectives::Range> ranges{{0, 512}, {768, 256}, {2048, 1024}, {3840, 256}};
  for (const DType dtype : {DType::f32, DType::u8})
    for (const int ranks : {1, 2, 4})
      for (const std::size_t held : {std::size_t{1}, static_cast<std::size_t>(ranks)})
        for (const std::size_t bucket_elements : {1, 1100, 1 << 20}) {
          CAPTURE_ALL(ranks, held, bucket_elements);
          const BucketPartition cut(4096, ranks, bucket_elements, held);
          const std::size_t part = cut.piece_elements() * held;
          std::size_t most = 0;
          std::vector<ShardRecords> records;  // by part of the unit
          for (std::size_t begin = 0; begin < 4096; begin += part) {
            records.emplace_back(cut, collectives::Range{begin, part}, std::vector{DType::f32, dtype},
                                 actors::ElementSet(ranges));
            for (std::size_t bucket = 0; bucket < cut.buckets(); ++bucket) {
              std::vector<std::size_t> offsets;
              for (const collectives::Range& run : cut.runs({begin, part}, bucket))
                for (const collectives::Range& range : actors::ElementSet(ranges).in(run)) {
                  const auto found = records.back().run_from(range.begin, 1);
                  CHECK(found.bucket == bucket);
                  CHECK(found.count == range.count);
                  for (std::size_t e = 0; e < range.count; e += 256)
                    offsets.push_back(records.back().run_from(range.begin + e, 1).offset);
                }
              most = std::max(most, offsets.size());
              for (std::size_t i = 0; i < offsets.size(); ++i)  // no gaps
                CHECK(offsets[i] == records.back().record_offset(bucket) + records.back().array_offset(bucket, 1) +
                                        i * runtime::bytes_of(dtype, 256));
            }
          }
          for (const ShardRecords& each : records) {
            CHECK(each.region_bytes() == records.front().region_bytes());
            CHECK(each.array_offset(0, 2) - each.array_offset(0, 1) ==
                  runtime::round_up(runtime::bytes_of(dtype, 256 * most), 64));
          }
        }
  const ShardRecords records(BucketPartition(4096, 1, 4096, 1), {0, 4096}, {DType::f32},
                             actors::ElementSet(ranges));
  CHECK_THROWS_WITH_AS((void)records.run_from(600), doctest::Contains("array 0 of records has no element 600"),
                       Error);
}

TEST_CASE("a slot costs nothing besides its states if the bucket fills its blocks") {
  const ShardRecords records(BucketPartition(40 << 20, 1, 16 << 20, 1), {0, 40 << 20},
                             {DType::f32, DType::f32, DType::f32});
  CHECK(records.buckets() == 3);
  CHECK(records.slot_bytes() == std::size_t{12} * (16 << 20));
  CHECK(records.region_bytes() == std::size_t{12} * (40 << 20));
}
