// Optimizer step, bucket by bucket as gradient chunks are reduced (Myelin §V-C, chunk_schedule.hpp): update of this
// rank's optimizer shards, then refreshed parameters to the ranks that need them (PaRO §3.4). Loop thread only.
//
// Ranks must agree that a step is neither skipped nor clipped before it takes effect. The next batch may start while
// later layers are still updated.
//
//   at once   every step takes effect: update each gradient chunk as soon as it is reduced
//   wait      prefetch states, wait for the agreement, then update the first layers first: the next batch needs them
//   flip      update chunks into spare copies as they are reduced, as if nothing were clipped; the agreement commits
//             or drops them, and buckets that were not updated ahead, or are clipped, are updated now; so are states
//             on the device, which have no spare copies
#pragma once

#include "actors/base/actor.hpp"
#include "actors/optimizer/update_sweep.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::actors {

class Optimizer final : public Actor {
 public:
  struct Plan {
    offload::CommitMode commit_mode = offload::CommitMode::always;
    std::size_t depth = 1;  ///< maximum number of buckets with fetched states
    GradientGather::Plan gradients;
    StateRecords::Plan states;
    BucketStep::Plan step;
    ParameterRefresh::Plan refresh;
    MatrixExchange::Plan matrices;

    /// Bundles in the order of first updates: as reduced, if updates do not wait for the agreement.
    [[nodiscard]] std::vector<std::size_t> order(const ChunkSchedule& chunks) const;
  };
  /// `every_step_counts`: updates do not depend on an agreement of all ranks: no clipping, no dynamic loss scale.
  [[nodiscard]] static Plan plan(PlanContext& planner, bool every_step_counts);

  /// Statistics of commit decisions, and the time from decisions until all states were stored.
  struct Answers {
    std::int64_t steps = 0;
    std::int64_t skipped = 0;
    std::int64_t flipped = 0;        ///< steps committed by flipping
    std::int64_t again = 0;          ///< steps repeated because of clipping
    std::int64_t buckets_ahead = 0;  ///< buckets of flipped steps that were updated before the decision
    std::int64_t buckets = 0;        ///< all buckets of flipped steps
    double seconds = 0;              ///< sum over all steps
  };

  /// `offloaded_parameters` is null if parameters are on the device, `gradients` if accumulated gradients are.
  Optimizer(const RankContext& context, const ModelShare& share, const Plan& plan, ParameterStore& parameters,
            OffloadedParameters* offloaded_parameters, OffloadedGradients* gradients);

  /// Starts a batch after the decision on the previous one; fetches the first states. `unclipped`: options of the step
  /// if it is committed without clipping.
  void begin(const runtime::UpdateOptions& unclipped);
  /// The gradients of a chunk are reduced. Call it in the order of chunks.
  void reduced(std::size_t chunk);
  /// Commits the step after all passes. `done` runs when all states of this rank are stored; the next batch may start
  /// before, and with offloaded states even end.
  void step(const runtime::UpdateOptions& adamw, runtime::Handler done) { decide(&adamw, std::move(done)); }
  /// Skips the step; parameters stay. `done` as for step().
  void skip(runtime::Handler done) { decide(nullptr, std::move(done)); }

  /// Calls `handler` when all states of this rank contain the newest step, before the next change; possibly at once.
  /// Call it after the decision on that step; one handler.
  void when_stored(runtime::Handler handler);
  /// Sets a guard that is called before states change.
  void guard_with(CopyOnWriteGuard guard) { shared_.guard = std::move(guard); }

  [[nodiscard]] const Answers& answers() const noexcept { return answers_; }
  [[nodiscard]] const StateRecords& records() const noexcept { return shared_.states; }

  [[nodiscard]] const char* name() const noexcept override { return "optimizer"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;

  /// See StateRecords::access(). Between steps. Replicas of other ranks do not change.
  void access_state(StateRecords::Access access);

 private:
  /// A step from its start until all its work has finished.
  struct BatchStep {
    runtime::UpdateOptions adamw;
    std::optional<bool> commits;  ///< decision: committed or skipped
    bool as_ahead = false;        ///< committed with the initial `adamw`
    std::size_t bundles_missing = 0;
    int parts_missing = 3;  ///< pending phases: decision, parameters, states
    runtime::Duration answered;
    runtime::Handler stored;  ///< when_stored()
    runtime::Handler done;
  };

  /// Commits the step with these options, or skips it.
  void decide(const runtime::UpdateOptions* adamw, runtime::Handler done);
  /// Returns whether the newest step is storing_.front().
  [[nodiscard]] bool newest_has_pipeline() const { return storing_.front() == newest_; }
  /// The pipeline is free for storing_.front().
  void begin_states();
  /// Ends the updates ahead after the decision. All buckets are ready, or will be if gradients pass through buffers.
  void end_ahead();
  /// No update ahead is running for storing_.front(), whose decision is known.
  void ahead_over();
  void bundle_refreshed();
  /// Ends the newest step's refresh without a change of parameters.
  void keep_parameters();
  /// The states of storing_.front() are stored.
  void stored();
  void part_over(BatchStep& step);

  offload::CommitMode commit_mode_;
  UpdateSweep::Shared shared_;
  std::unique_ptr<UpdateSweep> ahead_;  // updates before the decision; null: no flips
  UpdateSweep steps_;                   // committed updates

  std::deque<std::shared_ptr<BatchStep>> storing_;     // steps with states to store; the first is in the pipeline
  std::deque<std::shared_ptr<BatchStep>> refreshing_;  // steps with parameters to refresh
  std::shared_ptr<BatchStep> newest_;
  Answers answers_;
};

}  // namespace ranvier::actors
