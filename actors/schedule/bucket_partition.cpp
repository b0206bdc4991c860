#include "actors/schedule/bucket_partition.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::actors {

using collectives::Range;

BucketPartition::BucketPartition(std::size_t elements, int ranks, std::size_t bucket_elements,
                                 std::size_t pieces_held) {
  const auto pieces = static_cast<std::size_t>(ranks);
  expect(elements % pieces == 0 && pieces_held > 0, "{} elements are cut for {} ranks", elements, ranks);
  piece_ = elements / pieces;
  slice_ = std::max(granule, bucket_elements / pieces_held / granule * granule);
}

Range BucketPartition::slice(std::size_t bucket) const noexcept {
  const std::size_t begin = std::min(piece_, bucket * slice_);
  return {begin, std::min(slice_, piece_ - begin)};
}

std::vector<Range> BucketPartition::runs(Range range, std::size_t bucket) const {
  const Range part = slice(bucket);
  std::vector<Range> runs;
  for (std::size_t p = 0; p < pieces(range); ++p)
    runs.push_back({range.begin + p * piece_ + part.begin, part.count});
  return runs;
}

BucketPartition::Spread BucketPartition::spread(Range range, std::size_t bucket) const {
  const Range part = slice(bucket);
  const bool together = pieces(range) <= 1 || part.count == piece_;
  return {range.begin + part.begin, elements(range, bucket),
          together ? runtime::StridedLayout{} : runtime::StridedLayout{.run = part.count, .stride = piece_}};
}

}  // namespace ranvier::actors
