#include "offload/bucket_layout.hpp"

#include "offload/tier.hpp"
#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::offload;
using runtime::DType;

TEST_CASE("buckets cover the elements once, and their arrays and records do not overlap") {
  for (const std::vector<DType>& dtypes :
       {std::vector{DType::f32, DType::bf16, DType::f64}, std::vector{DType::bf16, DType::i8, DType::u8}})
    for (const std::size_t elements : {0, 1, 63, 64, 1000, 1024, 5000})
      for (const std::size_t bucket_elements : {1, 16, 100, 1024, 4999, 5000, 1 << 24}) {
        const BucketLayout layout(elements, bucket_elements, dtypes);
        std::size_t covered = 0, used = 0;
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
          CHECK(layout.begin(bucket) == covered);
          const std::size_t n = layout.end(bucket) - layout.begin(bucket);
          CHECK(n > 0);
          CHECK(n <= bucket_elements);
          covered += n;
          const auto bytes = [&](std::size_t array) {
            return is_in_blocks(dtypes[array]) ? (n + 255) / 256 * 260 : n * size_of(dtypes[array]);
          };
          CHECK(layout.record_offset(bucket) >= used);
          CHECK(layout.record_offset(bucket) % Tier::block_bytes == 0);
          CHECK(layout.array_offset(bucket, 0) == 0);
          CHECK(layout.array_offset(bucket, 1) >= bytes(0));
          CHECK(layout.array_offset(bucket, 2) >= layout.array_offset(bucket, 1) + bytes(1));
          CHECK(layout.array_offset(bucket, 1) % 64 == 0);
          CHECK(layout.array_offset(bucket, 2) % 64 == 0);
          CHECK(layout.record_bytes(bucket) >= layout.array_offset(bucket, 2) + bytes(2));
          CHECK(layout.record_bytes(bucket) <= layout.slot_bytes());
          used = layout.record_offset(bucket) + layout.record_bytes(bucket);
        }
        CHECK(covered == elements);
        CHECK(layout.region_bytes() == used);
      }
}

TEST_CASE("arrays in blocks take whole blocks of each bucket") {
  const BucketLayout layout(1000, 512, {DType::bf16, DType::i8, DType::u8});
  CHECK(layout.buckets() == 2);
  for (const std::size_t bucket : {0u, 1u}) {  // 512 elements, and 488: two blocks each
    CHECK(layout.array_offset(bucket, 1) == 1024);
    CHECK(layout.array_offset(bucket, 2) == 1024 + 9 * 64);
    CHECK(layout.record_bytes(bucket) == 4096);
  }
}

TEST_CASE("a slot costs nothing besides its states if the bucket fills its blocks") {
  const BucketLayout layout(40 << 20, 16 << 20, {DType::f32, DType::f32, DType::f32});
  CHECK(layout.buckets() == 3);
  CHECK(layout.slot_bytes() == std::size_t{12} * (16 << 20));
  CHECK(layout.region_bytes() == std::size_t{12} * (40 << 20));
}

TEST_CASE("buckets without elements are refused") { CHECK_THROWS_AS(BucketLayout(10, 0, {DType::f32}), Error); }
