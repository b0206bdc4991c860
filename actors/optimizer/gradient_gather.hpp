// Brings the gradients of bundles to places for the step: gathered where optimizer states are shared out less than they
// (PaRO §3.4), or from the tier where they wait. Gathers go in one order on all ranks, whatever comes from a tier
// first. A step on the host reads gradients in host memory where they are, if nothing is gathered. Loop thread only.
#pragma once

#include "actors/exchange/hop_pipeline.hpp"
#include "actors/gradients/gradient_records.hpp"
#include "actors/optimizer/bundle_sweep.hpp"

#include <functional>
#include <vector>

namespace ranvier::actors {

class GradientGather {
 public:
  struct Plan {
    runtime::MemoryId places;  ///< each for any bundle
    std::size_t place_count = 0;
    HopPipeline::Plan gather;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner);

  /// `records` is null where sums are on the device.
  GradientGather(const RankContext& context, const ModelShare& share, const Plan& plan, GradientRecords* records);

  /// Otherwise gradients are stepped where they are.
  [[nodiscard]] bool needed() const noexcept { return needed_; }
  /// A bucket's gradients in host memory, where the step reads them; null: they are on the device.
  [[nodiscard]] const std::byte* on_host(const ChunkSchedule::Bucket& bucket) const {
    return records_ != nullptr && !needed_ ? records_->reduced(bucket.unit, bucket.index) : nullptr;
  }
  [[nodiscard]] bool has_place() const noexcept { return !free_places_.empty(); }
  /// Gives the round's next bundle a place and calls `there` once its gradients are in it. All bundles of a round, in
  /// order.
  void bring(BundleSweep& round, std::size_t bundle, runtime::Handler there);
  /// They are not needed any more.
  void release(BundleSweep::Bundle& bundle);

  [[nodiscard]] std::vector<Wait> waits() const { return gather_.waits(); }
  [[nodiscard]] std::vector<int> peers() const { return gather_.peers(); }

 private:
  struct Coming {
    BundleSweep* round = nullptr;
    std::size_t bundle = 0;
    std::size_t missing = 0;  // buckets, on their way to the place
    runtime::Handler there;
  };
  void copied(std::uint64_t number);

  runtime::EventLoop* loop_;
  runtime::StreamView stream_;
  const UnitStates* states_;
  GradientRecords* records_;
  bool needed_;
  HopPipeline gather_;
  std::vector<std::byte*> free_places_;
  std::deque<Coming> coming_;
  std::uint64_t first_ = 0;  // number of coming_.front()
};

}  // namespace ranvier::actors
