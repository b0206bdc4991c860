// Gathers updated parameters on the ranks that need them (PaRO §3.4), and stores offloaded ones in their tier. Bundles
// are gathered in the same order on all ranks. Loop thread only.
#pragma once

#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/states/hop_pipeline.hpp"
#include "actors/states/offloaded_parameters.hpp"
#include "actors/states/parameter_store.hpp"
#include "runtime/loop/in_order.hpp"

#include <vector>

namespace ranvier::actors {

class ParameterRefresh {
 public:
  using Plan = BundleGatherPlan;  ///< buffers for offloaded parameters
  [[nodiscard]] static Plan plan(PlanContext& planner);

  /// `tier` is null if all parameters are on the device.
  ParameterRefresh(const RankContext& context, const ModelShare& share, const Plan& plan,
                   ParameterStore& parameters, OffloadedParameters* tier);

  /// Returns whether updates write parameters to buffers.
  [[nodiscard]] bool uses_places() const noexcept { return tier_ != nullptr; }
  [[nodiscard]] bool has_place() const noexcept { return !uses_places() || places_.has_free(); }
  void take_place(BundleSweep::Bundle& bundle) { bundle.parameters = places_.take(); }

  /// Returns whether only this rank, on the update's streams, reads its updated parameters.
  [[nodiscard]] bool is_local() const noexcept { return !gather_.moves() && !states_->gathers_trained(); }

  /// Call it after the decision on a step: parameters change from now on, unit by unit.
  void begin() { parameters_->begin_refresh(); }
  /// A bundle of the sweep is updated. Calls `done` when its parameters are gathered or stored. Each bundle once, in
  /// any order; gathers run in bundle order. `units_refreshed`: refreshed() was called for its buckets.
  void stepped(const BundleSweep& round, std::size_t bundle, bool units_refreshed, runtime::Handler done);
  /// The parameters of a bucket are refreshed. The store is notified of each unit with its last bucket.
  void refreshed(const ChunkSchedule::Bucket& bucket);
  /// Ends a step without changes.
  void keep_all();

  [[nodiscard]] std::vector<Wait> waits() const { return gather_.waits(); }
  [[nodiscard]] std::vector<int> peers() const { return gather_.peers(); }

 private:
  void gather(const BundleSweep& round, std::size_t bundle, runtime::Handler done);
  void store(const BundleSweep& round, std::size_t bundle, const runtime::Handler& done);

  runtime::Trace* trace_;
  const UnitStates* states_;
  ParameterStore* parameters_;
  OffloadedParameters* tier_;
  HopPipeline gather_;
  runtime::SlotPool places_;
  runtime::InOrder gathers_;
  std::vector<std::size_t> buckets_missing_;  // by unit
};

}  // namespace ranvier::actors
