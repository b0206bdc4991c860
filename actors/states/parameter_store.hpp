// Provides complete, up-to-date parameters to passes. A pass announces in advance which units it will access; this
// determines each unit's buffer (BufferSchedule). Offloaded shards are fetched (offloaded_parameters.hpp); units are
// gathered into their buffers, accessed and released (ZeRO-Infinity §6.2, §7.1; MiCS §4). Units are gathered by:
//
//   collectives   if all rows of the column have the same order: hop by hop, units of a step as one operation
//   pulls         if messages decide the order, so that rows differ (shard_pulls.hpp)
//
// ZeRO++ (§3.2, hpZ): the first forward gather of a batch leaves a secondary shard in each group, and backward passes
// gather inside the group. The secondary shard of a frozen unit is valid until the run ends: after the unit's first
// gather, forward passes use it, too. The order of accesses decides this, so it is identical on all ranks.
//
// Loop thread only.
#pragma once

#include "actors/schedule/buffer_schedule.hpp"
#include "actors/schedule/pass_resource.hpp"
#include "actors/states/hop_pipeline.hpp"
#include "actors/states/offloaded_parameters.hpp"
#include "actors/states/shard_pulls.hpp"
#include "runtime/loop/in_order.hpp"
#include "runtime/trace/trace.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

class ParameterStore final : public Actor, public PassResource {
 public:
  struct Options {
    int prefetch = 2;    ///< layers or modules gathered ahead of the current one; 0: none
    bool pulls = false;  ///< rows differ in the order of passes
    bool reuse = true;   ///< do not gather a unit again while it is in a buffer; false: as in the papers
  };

  struct Plan {
    Options options;
    bool pulls = false;                     ///< Options::pulls, if other rows have shards that this one needs
    BufferClasses classes;                  ///< empty if nothing is gathered
    std::vector<runtime::MemoryId> places;  ///< by class
    /// Forward and backward gathers of units with the same hops: all, or trained and frozen ones separately.
    std::vector<std::array<HopPipeline::Plan, 2>> pipelines;
    std::vector<std::size_t> pipeline_of;  ///< by unit
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

  /// Buffers for a stage's units. `elements`: by unit; 0: not gathered.
  [[nodiscard]] static BufferClasses classes_of(const models::StageSlices& stage,
                                                const std::vector<std::size_t>& elements, const Options& options);

  /// `records` is null if all shards are on the device.
  ParameterStore(const RankContext& context, const ModelShare& share, const Plan& plan,
                 OffloadedParameters* records);

  [[nodiscard]] const char* name() const noexcept override { return "parameters"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;

  /// Starts replying to pulls.
  void start();

  // Accesses are steps that need parameters.
  [[nodiscard]] bool uses(const models::Stage::PassStep& step) const override { return step.needs_parameters(); }
  std::uint64_t announce(const Announced& pass) override;
  [[nodiscard]] bool ready(std::uint64_t use) const override;
  void when_ready(std::uint64_t use, runtime::Handler handler) override {
    uses_.when_ready(use, std::move(handler));
  }
  void provide(std::uint64_t use, models::StepArrays& arrays) override;
  [[nodiscard]] bool queued(std::uint64_t use) override;
  void done(std::uint64_t use) override;

  /// All passes of a batch are finished. Later passes wait for trained units until refreshed().
  void begin_refresh();
  /// This rank's shard of the unit is updated; once per batch. It may come before the end of all passes, because a unit
  /// with reduced gradients is not accessed again in the batch, in any row.
  void refreshed(std::size_t unit);

 private:
  using Fill = ShardPulls::Fill;
  struct Gather {
    std::uint64_t use = 0;
    bool backward = false;   // for a backward pass
    bool submitted = false;  // its collectives have started
    std::vector<Fill> fills;
    std::optional<std::uint64_t> after;         // access that must end before
    std::size_t missing = 0;                    // pending fetches, replies to pulls, and collectives
    std::vector<int> asked;                     // ranks with pending replies, once per reply
    std::optional<runtime::Duration> asked_at;  // time of the requests; none: not sent
    runtime::Duration came{};                   // time of the last reply
    runtime::Duration since{};                  // loop time of the start
  };
  struct Use {
    models::Stage::PassStep step;
    std::vector<const std::byte*> pointers;  // by unit of the layer
    bool here = true;                        // units gathered for this access have arrived
  };
  struct Place {
    std::byte* data = nullptr;
    int copies = 0;  // pending copies from this buffer
  };
  /// `version` is ignored for frozen units.
  [[nodiscard]] bool has_shard(std::size_t unit, bool backward, std::uint64_t version) const;
  [[nodiscard]] bool on_device(const Fill& fill) const {
    return owners_.tier(fill.unit, fill.backward) == TierKind::device;
  }
  [[nodiscard]] bool can_start(const Gather& gather) const;
  void start_gathers();
  void read_ahead();
  void bring_own(const std::shared_ptr<Gather>& gather);
  void submit(const std::shared_ptr<Gather>& gather);
  /// Called after data of another rank has arrived.
  void came(const std::shared_ptr<Gather>& gather);
  void arrived(const std::shared_ptr<Gather>& gather);
  void keep_secondary(std::size_t unit, std::size_t place);
  /// Calls `next` on the loop after all queued copies.
  void after_copies(runtime::Handler next);
  [[nodiscard]] std::string describe(const Gather& gather) const;

  const RankContext* context_;
  OffloadedParameters* records_;
  const models::StageSlices* stage_;
  const UnitStates* states_;
  const ColumnOptions* column_;
  ShardOwners owners_;
  bool reuse_;
  BufferSchedule schedule_;
  std::vector<std::array<HopPipeline, 2>> pipelines_;  // none: all units are complete on the device, read in place
  std::vector<std::size_t> pipeline_of_;               // by unit
  std::vector<Place> places_;
  std::optional<ShardPulls> pulls_;  // set if rows differ in order

  std::uint64_t version_ = 0;                      // batches whose passes are over
  std::vector<bool> gathered_once_;                // by unit: announced, for a frozen unit with a secondary shard
  std::vector<std::uint64_t> version_of_;          // by unit, how often it was refreshed; frozen: 0
  std::vector<std::uint64_t> secondary_of_;        // version of the secondary copy, plus one
  std::vector<std::uint64_t> secondary_begun_of_;  // the same, including a copy that is in progress
  Accesses<Use> uses_;
  std::deque<std::shared_ptr<Gather>> gathers_to_start_;
  std::vector<std::shared_ptr<Gather>> gathers_under_way_;
  std::uint64_t started_ = 0;  // gathers
  runtime::InOrder submits_;
};

}  // namespace ranvier::actors
