#include "actors/states/shard_records.hpp"

#include "offload/tier.hpp"
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

TEST_CASE("a slot costs nothing besides its states if the bucket fills its blocks") {
  const ShardRecords records(BucketPartition(40 << 20, 1, 16 << 20, 1), {0, 40 << 20},
                             {DType::f32, DType::f32, DType::f32});
  CHECK(records.buckets() == 3);
  CHECK(records.slot_bytes() == std::size_t{12} * (16 << 20));
  CHECK(records.region_bytes() == std::size_t{12} * (40 << 20));
}
