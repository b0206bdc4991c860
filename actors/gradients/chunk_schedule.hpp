// In which operations the gradients of a batch are reduced and its units stepped (Myelin §V-C), as data that all ranks
// of a column have alike:
//
//   bucket   a slice of every finest piece of a unit (unit_cut.hpp): what one fetch of optimizer states is for
//   bundle   a bucket of some size and the small ones before it, or as many small ones: one gather of gradients, one
//            refresh of parameters
//   chunk    k bundles of units that are complete one after another: one reduction
//
// Units come from the back, as backward passes leave them; a unit that another stage shares comes last and in chunks of
// its own, because it is complete only when both stages are. Pure data; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::actors {

struct ChunkUnit {
  std::size_t front = 0;  ///< the frontmost layer that uses it
  bool tied = false;      ///< with another stage
  std::vector<std::size_t> bucket_bytes;
  std::size_t number = 0;  ///< where it is tied: the same on both stages, which take those in one order
};

struct ChunkOptions {
  static constexpr std::size_t all = 0;
  std::size_t chunk_buckets = 2;       ///< bundles of a chunk; all: one chunk, and one for each tied unit
  std::size_t bundle_bytes = 1 << 20;  ///< smaller buckets ride along, and count where they make up as much
};

struct ChunkSchedule {
  struct Bucket {
    std::size_t unit = 0;
    std::size_t index = 0;  ///< within the unit

    friend bool operator==(const Bucket&, const Bucket&) = default;
  };
  struct Bundle {
    std::vector<Bucket> buckets;
    std::size_t front = 0;  ///< the frontmost layer that uses one of them

    friend bool operator==(const Bundle&, const Bundle&) = default;
  };
  /// Bundles [begin, end).
  struct Chunk {
    std::size_t begin = 0;
    std::size_t end = 0;

    friend bool operator==(const Chunk&, const Chunk&) = default;
  };

  std::vector<Bundle> bundles;  ///< in the order of the reductions
  std::vector<Chunk> chunks;    ///< likewise

  /// The buckets of a chunk, one after another.
  [[nodiscard]] std::vector<Bucket> buckets(const Chunk& chunk) const;
  /// Bundles in the order of the layers that read them, for steps that begin when all are reduced.
  [[nodiscard]] std::vector<std::size_t> from_the_front() const;
};

[[nodiscard]] ChunkSchedule chunk_schedule(std::span<const ChunkUnit> units, const ChunkOptions& options);

}  // namespace ranvier::actors
