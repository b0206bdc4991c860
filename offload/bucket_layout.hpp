// Partitions the optimizer's states into buckets (Myelin §V-B). All states of a bucket are stored as one record in a
// tier, so one transfer moves it. Pure data.
//
//   E elements in buckets of B, the last one shorter; A arrays (master weights, m, v) of different types
//   record of bucket b: array 0, array 1, … each at a multiple of 64 bytes, the record in whole blocks
#pragma once

#include "runtime/base/dtype.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::offload {

class BucketLayout {
 public:
  /// A bucket has at most E elements. `dtypes`: type of each array. Buckets do not split blocks of int8.
  BucketLayout(std::size_t elements, std::size_t bucket_elements, std::vector<runtime::DType> dtypes);

  [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
  [[nodiscard]] std::size_t buckets() const noexcept;

  /// Elements [begin, end) of a bucket.
  [[nodiscard]] std::size_t begin(std::size_t bucket) const noexcept { return bucket * bucket_elements_; }
  [[nodiscard]] std::size_t end(std::size_t bucket) const noexcept;

  /// Offset of a record in its region, its size, and the offset of an array in it.
  [[nodiscard]] std::size_t record_offset(std::size_t bucket) const noexcept;
  [[nodiscard]] std::size_t record_bytes(std::size_t bucket) const noexcept;
  [[nodiscard]] std::size_t array_offset(std::size_t bucket, std::size_t array) const noexcept;

  /// Bytes of a slot that fits any record, and of a region for all records.
  [[nodiscard]] std::size_t slot_bytes() const noexcept;
  [[nodiscard]] std::size_t region_bytes() const noexcept;

 private:
  std::size_t elements_;
  std::size_t bucket_elements_;
  std::vector<runtime::DType> dtypes_;
};

}  // namespace ranvier::offload
