// Partition of a unit into optimizer buckets (Myelin §V-B). Bucket b contains elements [b·slice, (b + 1)·slice) of
// every finest shard, one per rank of the column. So owner and summation order of an element do not depend on the
// bucket size, and every scope's range has elements in every bucket.
//
//   unit of 2 ranks, 3 buckets   |0 0 1 1 2|0 0 1 1 2|     bucket of each element
//   *bucket order* of a range: bucket 0 of all finest shards in the range, then bucket 1, …
//
// Pure data; any thread.
#pragma once

#include "collectives/plans/plan.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/dtype.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

class BucketPartition {
 public:
  /// Slice sizes are multiples of this number of elements, except the last; squared norms use blocks of this size.
  static constexpr std::size_t granule = 512;

  BucketPartition() = default;
  /// `elements`: a multiple of `ranks`. A bucket has at most `bucket_elements` elements in a range of `pieces_held`
  /// finest shards, but at least a granule per shard.
  BucketPartition(std::size_t elements, int ranks, std::size_t bucket_elements, std::size_t pieces_held);

  [[nodiscard]] std::size_t piece_elements() const noexcept { return piece_; }
  [[nodiscard]] std::size_t buckets() const noexcept {
    return piece_ == 0 ? 0 : runtime::ceil_divide(piece_, slice_);
  }
  /// Elements of each finest shard in a bucket, relative to the shard's start.
  [[nodiscard]] collectives::Range slice(std::size_t bucket) const noexcept;
  /// Number of finest shards in a range that consists of complete ones.
  [[nodiscard]] std::size_t pieces(collectives::Range range) const noexcept {
    return piece_ == 0 ? 0 : range.count / piece_;
  }
  /// Number of a range's elements in a bucket.
  [[nodiscard]] std::size_t elements(collectives::Range range, std::size_t bucket) const noexcept {
    return pieces(range) * slice(bucket).count;
  }
  /// A range's elements in a bucket, one contiguous range per finest shard.
  [[nodiscard]] std::vector<collectives::Range> runs(collectives::Range range, std::size_t bucket) const;

  /// A range's elements in a bucket as one strided layout.
  struct Spread {
    std::size_t begin = 0;  ///< first element, within the unit
    std::size_t count = 0;
    runtime::StridedLayout runs;  ///< layout relative to `begin`
  };
  [[nodiscard]] Spread spread(collectives::Range range, std::size_t bucket) const;

 private:
  std::size_t piece_ = 0;
  std::size_t slice_ = granule;
};

}  // namespace ranvier::actors
