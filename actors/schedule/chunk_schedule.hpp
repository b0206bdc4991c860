// Grouping of a batch's reductions and updates (Myelin §V-C) as data, identical on all ranks of a column. Any thread.
//
//   bucket   a slice of every finest shard of a unit (bucket_partition.hpp): one fetch of optimizer states
//   bundle   a bucket and the small ones before it, or several small ones: one gather of gradients, one refresh
//   chunk    k consecutive bundles: one reduction (DDP: a bucket)
//
// Units are in backward order. Units tied with another stage come last, in separate chunks, because both stages must be
// complete.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::actors {

struct ChunkUnit {
  std::size_t front = 0;  ///< first layer that uses the unit
  bool tied = false;      ///< tied with another stage
  std::vector<std::size_t> bucket_bytes;
  std::size_t number = 0;  ///< order of tied units, identical on both stages
};

struct ChunkOptions {
  static constexpr std::size_t all = 0;
  std::size_t chunk_buckets = 2;       ///< bundles per chunk; all: one chunk, and one per tied unit
  std::size_t bundle_bytes = 1 << 20;  ///< minimum size of a bundle; smaller buckets are combined
};

struct ChunkSchedule {
  struct Bucket {
    std::size_t unit = 0;
    std::size_t index = 0;  ///< within the unit

    friend bool operator==(const Bucket&, const Bucket&) = default;
  };
  struct Bundle {
    std::vector<Bucket> buckets;
    std::size_t front = 0;  ///< first layer that uses one of its units

    friend bool operator==(const Bundle&, const Bundle&) = default;
  };
  /// Bundles [begin, end).
  struct Chunk {
    std::size_t begin = 0;
    std::size_t end = 0;

    friend bool operator==(const Chunk&, const Chunk&) = default;
  };

  std::vector<Bundle> bundles;  ///< in the order of the reductions
  std::vector<Chunk> chunks;    ///< in the order of reductions

  /// Buckets of a chunk, in order.
  [[nodiscard]] std::vector<Bucket> buckets(const Chunk& chunk) const;
  /// Numbers of bundles in the order of reductions.
  [[nodiscard]] std::vector<std::size_t> as_reduced() const;
  /// Numbers of bundles in layer order, for updates that start when all are reduced.
  [[nodiscard]] std::vector<std::size_t> from_the_front() const;
};

[[nodiscard]] ChunkSchedule chunk_schedule(std::span<const ChunkUnit> units, const ChunkOptions& options);

}  // namespace ranvier::actors
