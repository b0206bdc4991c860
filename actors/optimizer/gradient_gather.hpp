// Provides gradients of bundles for the update: gathers them if optimizer states are sharded less than gradients (PaRO
// §3.4), or fetches them from a tier. Gathers have the same order on all ranks. Updates on the host read offloaded
// gradients in place if nothing is gathered. Loop thread only.
#pragma once

#include "actors/gradients/offloaded_gradients.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/states/hop_pipeline.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::actors {

class GradientGather {
 public:
  using Plan = BundleGatherPlan;
  [[nodiscard]] static Plan plan(PlanContext& planner);

  /// `records` is null if accumulated gradients are on the device.
  GradientGather(const RankContext& context, const ModelShare& share, const Plan& plan,
                 OffloadedGradients* records);

  /// Returns whether gradients for offloaded states pass through buffers; otherwise updates read them in place.
  [[nodiscard]] bool needed() const noexcept { return needed_; }
  /// The same for a bucket. States on the device never read gradients in host memory.
  [[nodiscard]] bool needed(const ChunkSchedule::Bucket& bucket) const {
    return needed_ || (records_ != nullptr && !records_->stepped_in_place(bucket.unit));
  }
  /// A bucket's gradients in host memory; null: they are on the device.
  [[nodiscard]] const std::byte* on_host(const ChunkSchedule::Bucket& bucket) const {
    return records_ != nullptr && !needed(bucket) ? records_->reduced(bucket.unit, bucket.index) : nullptr;
  }
  [[nodiscard]] bool has_place() const noexcept { return places_.has_free(); }
  /// Assigns a buffer to a bundle of the sweep and calls `there` when it contains the gradients of its buckets that are
  /// needed(): one or more. Bundles in order.
  void bring(BundleSweep& round, std::size_t bundle, runtime::Handler there);
  [[nodiscard]] std::vector<Wait> waits() const { return gather_.waits(); }
  [[nodiscard]] std::vector<int> peers() const { return gather_.peers(); }

 private:
  void gather(const BundleSweep& round, const BundleSweep::Bundle& bundle, runtime::Handler there);

  const RankContext* context_;
  const UnitStates* states_;
  OffloadedGradients* records_;
  bool needed_;
  HopPipeline gather_;
  runtime::SlotPool places_;
  std::uint64_t brought_ = 0;  // bundles
  runtime::InOrder gathers_;
};

}  // namespace ranvier::actors
