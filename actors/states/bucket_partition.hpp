// How a unit is cut into buckets for the optimizer's phase (Myelin §V-B). Bucket b takes the elements [b·slice,
// (b + 1)·slice) of every finest piece of the unit, of which there is one per rank of the column: so each element
// keeps its owner, and with it its place in the order of sums, however the unit is cut, and every scope's range has
// its part of every bucket.
//
//   unit of 2 ranks, 3 buckets   |0 0 1 1 2|0 0 1 1 2|     by element: the bucket that takes it
//   what a rank keeps of a range lies in *bucket order*: bucket 0 of all the pieces in the range, bucket 1, …
//
// Pure data; any thread.
#pragma once

#include "collectives/plan.hpp"
#include "offload/bucket_layout.hpp"
#include "runtime/strided_layout.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

class BucketPartition {
 public:
  /// Slices are multiples of so many elements, but for the last one: sums of squares are taken over as many at a
  /// time.
  static constexpr std::size_t granule = 512;

  BucketPartition() = default;
  /// A unit of `elements`, a multiple of `ranks`; a bucket has at most `bucket_elements` (but a granule of each
  /// piece) of a range of `pieces_held` finest pieces.
  BucketPartition(std::size_t elements, int ranks, std::size_t bucket_elements, std::size_t pieces_held);

  [[nodiscard]] std::size_t piece_elements() const noexcept { return piece_; }
  [[nodiscard]] std::size_t buckets() const noexcept { return piece_ == 0 ? 0 : (piece_ + slice_ - 1) / slice_; }
  /// The elements of every finest piece that a bucket takes, counted from the piece's beginning.
  [[nodiscard]] collectives::Range slice(std::size_t bucket) const noexcept;
  /// Finest pieces in a range that has only whole ones.
  [[nodiscard]] std::size_t pieces(collectives::Range range) const noexcept {
    return piece_ == 0 ? 0 : range.count / piece_;
  }
  /// Elements of a range that are in a bucket.
  [[nodiscard]] std::size_t elements(collectives::Range range, std::size_t bucket) const noexcept {
    return pieces(range) * slice(bucket).count;
  }
  /// The same as runs of elements of the unit, one for each finest piece.
  [[nodiscard]] std::vector<collectives::Range> runs(collectives::Range range, std::size_t bucket) const;

  /// Where the elements of a range that are in a bucket lie, all of them at once.
  struct Spread {
    std::size_t begin = 0;  ///< the first of them, an element of the unit
    std::size_t count = 0;
    runtime::StridedLayout runs;  ///< from it on
  };
  [[nodiscard]] Spread spread(collectives::Range range, std::size_t bucket) const;

  /// Records of the buckets of a range in a tier, with arrays of `widths` bytes per element.
  [[nodiscard]] offload::BucketLayout layout(collectives::Range range, std::vector<std::size_t> widths) const;

 private:
  std::size_t piece_ = 0;
  std::size_t slice_ = granule;
};

}  // namespace ranvier::actors
