// A rank's range of a unit off the device, in host memory or files. Each bucket is a *record*: its elements of one or
// more arrays (master weights, m, v), in bucket order (bucket_partition.hpp), so one transfer moves it (Myelin §V-B).
//
//   record of a bucket: array 0, array 1, … each at a multiple of 64 bytes, the record in whole blocks
//
// Loop thread only.
#pragma once

#include "actors/schedule/bucket_partition.hpp"
#include "actors/states/element_set.hpp"
#include "actors/states/state_kind.hpp"
#include "actors/states/tier_options.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/loop/event_loop.hpp"
#include "runtime/transport/transport.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::actors {

struct PlanContext;
struct RankContext;

class ShardRecords {
 public:
  /// `range`: complete finest shards. `dtypes`: type of each array; buckets do not split blocks of int8. `in_last`:
  /// elements of the last array; each record has memory for the largest number in any rank's bucket. Nothing is stored
  /// without reserve().
  ShardRecords(const BucketPartition& cut, collectives::Range range, std::vector<runtime::DType> dtypes,
               ElementSet in_last = {});

  /// Reserves a zeroed region for all records, if there are any and they are not on the device.
  void reserve(PlanContext& planner, TierKind tier, runtime::MemoryKind kind, const std::string& name);

  [[nodiscard]] bool in_files() const noexcept { return tier_ == TierKind::nvme; }
  /// Bytes in files; 0 if the records are elsewhere.
  [[nodiscard]] std::size_t file_bytes() const noexcept { return in_files() ? region_bytes() : 0; }
  /// Number of buckets; 0 if the range is empty.
  [[nodiscard]] std::size_t buckets() const noexcept { return range_.count == 0 ? 0 : cut_.buckets(); }
  /// Number of elements of a bucket.
  [[nodiscard]] std::size_t elements(std::size_t bucket) const noexcept { return cut_.elements(range_, bucket); }

  /// Offset of an array in a record, size of a record, and its offset in the region.
  [[nodiscard]] std::size_t array_offset(std::size_t bucket, std::size_t array) const noexcept;
  [[nodiscard]] std::size_t record_bytes(std::size_t bucket) const noexcept {
    return offload::Tier::whole_blocks(array_offset(bucket, dtypes_.size()));
  }
  [[nodiscard]] std::size_t record_offset(std::size_t bucket) const noexcept { return bucket * slot_bytes(); }
  /// Bytes of a slot that fits any record: only the last record may be shorter than the first.
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return record_bytes(0); }
  /// Bytes of a region for all records.
  [[nodiscard]] std::size_t region_bytes() const noexcept {
    return buckets() == 0 ? 0 : record_offset(buckets() - 1) + record_bytes(buckets() - 1);
  }

  /// Elements of the unit that are contiguous in the unit and in an array.
  struct Run {
    std::size_t bucket = 0;
    std::size_t begin = 0, count = 0;  ///< elements of the unit
    std::size_t offset = 0;            ///< bytes from the start of the region
  };
  /// Elements of an array starting at `begin` (a block's first for int8), up to a gap or the end of their bucket and
  /// finest shard. Throws ErrorCode::internal if the array does not have them.
  [[nodiscard]] Run run_from(std::size_t begin, std::size_t array = 0) const;
  /// All runs of the first array, in unit order.
  [[nodiscard]] std::vector<Run> runs() const;
  /// The first array's bytes in unit order; `image`: bytes of the region.
  void add_ranges(const std::byte* image, std::vector<runtime::ConstBytes>& ranges) const;

  /// Host memory of the records, starting at a byte of the region.
  [[nodiscard]] std::byte* memory(const RankContext& context, std::size_t offset = 0) const;
  /// Location of a byte of the region.
  [[nodiscard]] StateLocation place(const RankContext& context, std::size_t offset) const;

  /// Moves bytes of a bucket's record, starting at byte `offset` of it, between their tier and the device.
  void move_record(const RankContext& context, offload::IoKind kind, std::size_t bucket, std::size_t offset,
                   std::span<std::byte> memory, runtime::Handler done) const;
  /// Moves all records between their tier and `image`, region_bytes() of memory.
  void move_image(const RankContext& context, offload::IoKind kind, std::byte* image, runtime::Handler done) const;
  /// Copies bytes between a state, which the device accesses, and host memory, over `context.compute`.
  static void copy(const RankContext& context, offload::IoKind kind, std::byte* state, std::span<std::byte> values,
                   const runtime::WorkName& work, runtime::Handler done);
  /// Copies bytes between the region, starting at byte `offset`, and host memory, over `context.compute`. `staging`: at
  /// least two blocks larger than `values`; only for files. Blocks that are partly written are read before.
  void access(const RankContext& context, offload::IoKind kind, std::size_t offset, std::span<std::byte> values,
              std::span<std::byte> staging, const runtime::WorkName& work, runtime::Handler done) const;
  /// Moves all records of a single array between their tier and `unit`, the complete unit on the device.
  void move(const RankContext& context, offload::IoKind kind, std::byte* unit, runtime::Handler done) const;

 private:
  BucketPartition cut_;
  collectives::Range range_;
  std::vector<runtime::DType> dtypes_;
  ElementSet in_last_;
  std::size_t most_in_last_ = std::numeric_limits<std::size_t>::max();  // elements of in_last_ in a bucket
  TierKind tier_ = TierKind::device;                                    // device: nothing is stored
  offload::TierRegion region_;
};

}  // namespace ranvier::actors
