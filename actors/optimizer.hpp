// The step that all ranks agreed on: AdamW on the part of each unit whose optimizer states this rank holds, then the
// refreshed parameters to exactly the ranks that need them (PaRO §3.4, update phase), neighbouring small units
// together. Units go from the front, so that the next batch can begin with the first layers while later ones are
// still under way. Where optimizer states are shared out less than gradients, those are gathered first; where they
// live off the device, they pass through it bucket by bucket (state_tier.hpp); parameters that do are refreshed in a few
// places and stored from there (parameter_tier.hpp). Loop thread only.
#pragma once

#include "actors/hop_pipeline.hpp"
#include "actors/parameter_store.hpp"
#include "actors/parameter_tier.hpp"
#include "actors/state_tier.hpp"
#include "actors/unit_states.hpp"
#include "runtime/trace.hpp"

#include <deque>
#include <string>
#include <vector>

namespace ranvier::actors {

class Optimizer {
 public:
  struct Options {
    std::size_t bundle_bytes = 1 << 20;  ///< neighbouring units up to so many bytes of parameters go as one operation
    TierOptions tiers;
  };
  struct Memory {
    std::vector<runtime::MemoryId> gradient_places;  ///< that whole gradients are gathered to, each for any bundle
    std::optional<runtime::MemoryId> parameter_places;  ///< likewise for parameters that live off the device
    HopPipeline::Memory gradient, refresh;
    StateTier::Memory states;
  };
  [[nodiscard]] static Memory plan(const UnitStates& states, const ColumnOptions& column,
                                   const collectives::ShardFlow& flow, const Options& options,
                                   offload::TierPlan& tiers, runtime::MemoryPlan& plan);

  /// `parameter_tier` is null where parameters live on the device. All outlive the optimizer.
  Optimizer(runtime::EventLoop& loop, offload::Tiers& tiers, collectives::Executor& executor,
            runtime::StreamView compute, const UnitStates& states, const ColumnOptions& column,
            const collectives::ShardFlow& flow, ParameterStore& parameters, ParameterTier* parameter_tier,
            runtime::Trace& trace, const Options& options, const Memory& memory, const runtime::Arena& arena);

  /// Fills master weights that live off the device; before the first begin().
  void load(StateTier::Source weights, runtime::Handler done);

  /// A batch begins.
  void begin();
  /// `adamw` as it is for this step. `done` runs once all states of this rank are as the step leaves them; the next
  /// batch may begin before, and where states live off the device even end.
  void step(const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// The step does not count: parameters stay. `done` likewise.
  void skip(runtime::Handler done);

  /// Copies master weights [begin, begin + out.size()) of a unit, which lie in the optimizer's range; between steps.
  void read(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done);

  /// Whether the compute stream or a tier has work of a step.
  [[nodiscard]] bool computing() const noexcept { return updates_ > 0 || (tier_ && tier_->working()); }

  /// Where states are that live off the device; null: they do not.
  [[nodiscard]] const StateTier* tier() const noexcept { return tier_.get(); }

  /// What is under way, for a report about a peer that is lost.
  [[nodiscard]] std::vector<std::string> running() const;

 private:
  void begin_bundles();
  void update(std::size_t bundle, std::byte* gathered);
  void update_in_tier(std::size_t bundle, std::byte* gathered);
  void unit_stepped(std::size_t unit);
  void leave(std::size_t bundle, std::byte* gathered);
  void refresh(std::size_t bundle);
  void refreshed(std::size_t bundle);
  /// Where the bundle's units' parameters lie as they are refreshed.
  [[nodiscard]] std::vector<UnitPart> parameters(std::size_t bundle) const;
  [[nodiscard]] std::string names(std::size_t bundle) const;

  runtime::EventLoop* loop_;
  runtime::StreamView compute_;
  const UnitStates* states_;
  ParameterStore* parameters_;
  ParameterTier* parameter_tier_;
  runtime::Trace* trace_;
  HopPipeline gradient_, refresh_;
  bool gathers_gradients_;
  bool refreshes_;
  std::vector<std::vector<std::size_t>> bundles_;
  std::vector<std::byte*> free_places_;
  std::vector<std::byte*> free_parameter_places_;
  std::vector<std::byte*> parameter_place_;      // by bundle, of a step, where parameters live off the device
  std::unique_ptr<StateTier> tier_;
  std::vector<std::size_t> bundle_of_;           // by unit
  std::vector<std::size_t> units_missing_;       // by bundle, of a step in the tier
  std::vector<std::byte*> gathered_;             // likewise

  runtime::AdamWOptions adamw_;
  runtime::Handler done_;
  std::size_t next_bundle_ = 0;
  std::size_t missing_ = 0;
  int updates_ = 0;  // and copies, on the compute stream
};

}  // namespace ranvier::actors
