// All bundles of a stage in a given order, with their buffers. Loop thread only.
#pragma once

#include "actors/states/hop_pipeline.hpp"
#include "actors/states/model_share.hpp"
#include "runtime/device/slot_pool.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Bytes of a bucket in buffers: gradients of the optimizer's range, and parameters of this rank's shard.
[[nodiscard]] std::size_t gradient_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket);
[[nodiscard]] std::size_t parameter_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket);

/// Gathers of bundles, and buffers for bundles.
struct BundleGatherPlan {
  runtime::SlotPool::Plan places;  ///< each for any bundle
  HopPipeline::Plan gather;
};
/// `bytes_of` a bucket: gradient_bytes or parameter_bytes. `places`: name of the buffers; `slots`: maximum number.
[[nodiscard]] BundleGatherPlan plan_gather(PlanContext& planner,
                                           std::size_t (*bytes_of)(const UnitStates&, const ChunkSchedule::Bucket&),
                                           const char* places, std::size_t slots,
                                           const HopPipeline::Options& gather);

struct BundleSweep {
  /// Bundles with matrices for Muon pass twice, since the update of a matrix needs its complete momentum.
  enum class Pass {
    whole,     ///< the complete update
    momentum,  ///< AdamW, and the momentum of matrices
    matrices,  ///< the orthogonal updates of matrices
  };
  struct Bundle {
    std::vector<ChunkSchedule::Bucket> buckets;
    Pass pass = Pass::whole;
    std::size_t number = 0;              ///< number in `order`
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
  /// Bundles of `share` in the order of their numbers in `order`. In a column of several ranks, a unit's second pass
  /// follows the next unit's first one, so that one is exchanged while the other one is computed.
  BundleSweep(const ModelShare& share, std::span<const std::size_t> order);

  [[nodiscard]] std::span<const Bucket> of(const Bundle& bundle) const {
    return std::span(buckets).subspan(bundle.first, bundle.buckets.size());
  }

  std::vector<Bundle> bundles;  ///< bundles that pass twice are listed twice
  std::vector<Bucket> buckets;
  std::vector<std::size_t> matrix_units;  ///< units with matrices, in the order in which their first pass ends
  std::size_t updated_units = 0;          ///< maximum number of units between the start and the end of their passes

 private:
  void add(const ModelShare& share, std::size_t bundle, std::size_t number, Pass pass);
};

}  // namespace ranvier::actors
