// What a step changed of parameters, on its way to exactly the ranks that need it (PaRO §3.4, update phase), and from
// there to a tier, where parameters live off the device. Bundles are gathered in one order on all ranks, whatever is
// stepped first. Loop thread only.
#pragma once

#include "actors/exchange/hop_pipeline.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/states/parameter_store.hpp"
#include "actors/states/parameter_records.hpp"

#include <vector>

namespace ranvier::actors {

class ParameterRefresh {
 public:
  struct Plan {
    runtime::MemoryId places;  ///< of parameters that live off the device, each for any bundle
    std::size_t place_count = 0;
    HopPipeline::Plan gather;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner);

  /// `tier` is null where all parameters live on the device.
  ParameterRefresh(const RankContext& context, const ModelShare& share, const Plan& plan,
                   ParameterStore& parameters, ParameterRecords* tier);

  /// Whether steps write parameters to places.
  [[nodiscard]] bool uses_places() const noexcept { return tier_ != nullptr; }
  [[nodiscard]] bool has_place() const noexcept { return !uses_places() || !free_places_.empty(); }
  void take_place(BundleSweep::Bundle& bundle);

  /// No rank but this one reads what it stepped, and of its streams only those of the step.
  [[nodiscard]] bool is_local() const noexcept { return gather_hops_ == 0 && !states_->gathers_trained(); }

  /// The step of a batch was answered: parameters change from here on, unit by unit.
  void begin() { parameters_->begin_refresh(); }
  /// A bundle of the round is stepped; calls `done` once its parameters are where they belong. Each bundle once, in any
  /// order; they are gathered in theirs. `units_told`: refreshed() was called for its buckets.
  void stepped(BundleSweep& round, std::size_t bundle, bool units_told, runtime::Handler done);
  /// A bucket's parameters are there; the store hears of each unit with its last bucket.
  void refreshed(const ChunkSchedule::Bucket& bucket);
  /// Nothing of any unit changes in this step.
  void keep_all();

  [[nodiscard]] std::vector<Wait> waits() const { return gather_.waits(); }
  [[nodiscard]] std::vector<int> peers() const { return gather_.peers(); }

 private:
  struct Stepped {
    bool units_told = false;
    runtime::Handler done;  // null: it is not stepped
  };
  void gather(BundleSweep& round, std::size_t bundle, Stepped stepped);
  void store(BundleSweep& round, std::size_t bundle, const Stepped& stepped);
  void over(const BundleSweep::Bundle& bundle, const Stepped& stepped);

  runtime::Trace* trace_;
  const UnitStates* states_;
  ParameterStore* parameters_;
  ParameterRecords* tier_;
  std::size_t gather_hops_;
  HopPipeline gather_;
  std::vector<std::byte*> free_places_;
  std::vector<Stepped> stepped_;              // by bundle
  std::size_t next_ = 0;                      // to gather
  std::vector<std::size_t> buckets_missing_;  // by unit
};

}  // namespace ranvier::actors
