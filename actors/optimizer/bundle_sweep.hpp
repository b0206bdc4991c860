// A sweep over all bundles of a stage in a given order, with its progress. Loop thread only.
#pragma once

#include "actors/states/hop_pipeline.hpp"
#include "actors/states/model_share.hpp"
#include "offload/bucket_pipeline.hpp"
#include "runtime/device/slot_pool.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Bytes of a bucket in buffers: gradients of the optimizer's range, and parameters of this rank's shard.
[[nodiscard]] std::size_t gradient_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket);
[[nodiscard]] std::size_t parameter_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket);

/// Sizes for planning gathers of bundles and their buffers.
struct BundleShapes {
  std::vector<std::vector<HopPipeline::ItemShape>> items;  ///< by bundle
  std::size_t max_bytes = 0;                               ///< maximum bytes per bundle
};
/// `bytes_of` a bucket: gradient_bytes or parameter_bytes.
[[nodiscard]] BundleShapes bundle_shapes(const ModelShare& share,
                                         std::size_t (*bytes_of)(const UnitStates&, const ChunkSchedule::Bucket&));

struct BundleSweep {
  struct Bundle {
    std::vector<ChunkSchedule::Bucket> buckets;
    std::size_t first = 0;               ///< first bucket; the others follow
    std::size_t buckets_missing = 0;     ///< buckets without an update
    runtime::SlotPool::Slot gradients;   ///< buffer, if they are gathered or fetched
    runtime::SlotPool::Slot parameters;  ///< buffer, if they are offloaded
  };
  struct Bucket {
    ChunkSchedule::Bucket bucket;
    std::size_t bundle = 0;
    std::size_t gradient_offset = 0, parameter_offset = 0;  ///< byte offsets in the bundle's buffers
  };

  BundleSweep() = default;
  /// Bundles of `share` in the order of their numbers in `order`.
  BundleSweep(const ModelShare& share, std::span<const std::size_t> order);

  void rewind() { may_begin = next = 0; }

  std::vector<Bundle> bundles;
  std::vector<Bucket> buckets;
  std::unique_ptr<offload::BucketPipeline> pipeline;
  std::size_t may_begin = 0;  ///< number of bundles that may start
  std::size_t next = 0;       ///< next bundle to start
};

}  // namespace ranvier::actors
