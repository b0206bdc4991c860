#include "offload/bucket_layout.hpp"

#include "offload/tier.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::offload {

BucketLayout::BucketLayout(std::size_t elements, std::size_t bucket_elements, std::vector<runtime::DType> dtypes)
    : elements_(elements),
      bucket_elements_(std::max<std::size_t>(1, std::min(elements, bucket_elements))),
      dtypes_(std::move(dtypes)) {
  expect(bucket_elements > 0, "buckets have no elements");
}

std::size_t BucketLayout::buckets() const noexcept { return runtime::ceil_divide(elements_, bucket_elements_); }

std::size_t BucketLayout::end(std::size_t bucket) const noexcept {
  return std::min(elements_, begin(bucket) + bucket_elements_);
}

std::size_t BucketLayout::array_offset(std::size_t bucket, std::size_t array) const noexcept {
  constexpr std::size_t alignment = runtime::MemoryPlan::alignment;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < array; ++i)
    offset += runtime::round_up(runtime::bytes_of(dtypes_[i], end(bucket) - begin(bucket)), alignment);
  return offset;
}

std::size_t BucketLayout::record_bytes(std::size_t bucket) const noexcept {
  return Tier::whole_blocks(array_offset(bucket, dtypes_.size()));
}

std::size_t BucketLayout::record_offset(std::size_t bucket) const noexcept {
  return bucket == 0 ? 0 : bucket * record_bytes(0);  // only the last record may be shorter than the first
}

std::size_t BucketLayout::slot_bytes() const noexcept { return elements_ == 0 ? 0 : record_bytes(0); }

std::size_t BucketLayout::region_bytes() const noexcept {
  if (elements_ == 0) return 0;
  const std::size_t last = buckets() - 1;
  return record_offset(last) + record_bytes(last);
}

}  // namespace ranvier::offload
