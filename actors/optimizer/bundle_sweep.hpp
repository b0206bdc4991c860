// All bundles of a stage once, in an order of their own, and how far they are in it: what a step of the optimizer goes
// through. Loop thread only.
#pragma once

#include "actors/exchange/hop_pipeline.hpp"
#include "actors/states/model_share.hpp"
#include "offload/bucket_pipeline.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Bytes of a bucket as places have it, piece after piece: of its gradients in the optimizer's range, and of the
/// parameters that this rank keeps.
[[nodiscard]] std::size_t gradient_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket);
[[nodiscard]] std::size_t parameter_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket);

/// What gathers of bundles and the places for them are planned for.
struct BundleShapes {
  std::vector<std::vector<HopPipeline::ItemShape>> items;  ///< by bundle
  std::size_t max_bytes = 0;                               ///< of a bundle
};
/// `bytes_of` a bucket: gradient_bytes or parameter_bytes.
[[nodiscard]] BundleShapes bundle_shapes(const ModelShare& share,
                                         std::size_t (*bytes_of)(const UnitStates&, const ChunkSchedule::Bucket&));

struct BundleSweep {
  struct Bundle {
    std::vector<ChunkSchedule::Bucket> buckets;
    std::size_t first = 0;            ///< number of the first bucket, the others follow
    std::size_t buckets_missing = 0;  ///< not stepped
    std::byte* gradients = nullptr;   ///< place, where they are gathered or come from a tier
    std::byte* parameters = nullptr;  ///< place, where they live off the device
  };
  struct Bucket {
    ChunkSchedule::Bucket bucket;
    std::size_t bundle = 0;
    std::size_t gradient_offset = 0, parameter_offset = 0;  ///< bytes in the bundle's places
  };

  BundleSweep() = default;
  /// Bundles of `share` in the order of their numbers in `order`.
  BundleSweep(const ModelShare& share, std::span<const std::size_t> order);

  /// No bundle has begun.
  void rewind() { may_begin = next = 0; }

  std::vector<Bundle> bundles;
  std::vector<Bucket> buckets;
  std::unique_ptr<offload::BucketPipeline> pipeline;
  std::size_t may_begin = 0;  ///< bundles
  std::size_t next = 0;       ///< to begin
};

}  // namespace ranvier::actors
