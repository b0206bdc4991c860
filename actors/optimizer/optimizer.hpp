// Optimizer step, bucket by bucket as gradient chunks are reduced (Myelin §V-C, chunk_schedule.hpp): AdamW on this
// rank's optimizer shards, then refreshed parameters to the ranks that need them (PaRO §3.4). Loop thread only.
//
//   reduced chunk → [gradient_gather] → fetch of states [state_records] → AdamW [bucket_step] → store
//                 → [parameter_refresh]
//
// A CommitPolicy decides when a bucket is updated and committed. The next batch may start while later layers are still
// updated.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/optimizer/bucket_step.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/optimizer/gradient_gather.hpp"
#include "actors/optimizer/parameter_refresh.hpp"
#include "actors/optimizer/state_records.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::actors {

/// Delays the update of a bucket until the running snapshot has copied it (checkpoint/snapshot.hpp).
class CopyOnWriteGuard {
 public:
  virtual ~CopyOnWriteGuard() = default;

  /// Calls `go` when this copy of the bucket's states (StateRecords::number_of) may change: at once, or after it was
  /// copied.
  virtual void before_change(const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go) = 0;
};

class Optimizer final : public Actor {
 public:
  struct Options {
    /// Updates do not depend on an agreement of all ranks: no clipping, no dynamic loss scale.
    bool every_step_counts = false;
  };
  struct Plan {
    bool every_step_counts = false;
    bool flips = false;     ///< Commit::flip, and steps need an agreement
    std::size_t depth = 1;  ///< maximum number of buckets with states on the device
    GradientGather::Plan gradients;
    StateRecords::Plan states;
    BucketStep::Plan step;
    ParameterRefresh::Plan refresh;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

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

  /// `parameter_records` is null if parameters are on the device, `gradients` if accumulated gradients are.
  Optimizer(const RankContext& context, const ModelShare& share, const Plan& plan, ParameterStore& parameters,
            ParameterRecords* parameter_records, GradientRecords* gradients);

  /// Starts a batch after the decision on the previous one; fetches the first states. `unclipped`: options of the step
  /// if it is committed without clipping.
  void begin(const runtime::AdamWOptions& unclipped);
  /// The gradients of a chunk are reduced. Call it in the order of chunks.
  void reduced(std::size_t chunk);
  /// Commits the step after all passes. `done` runs when all states of this rank are stored; the next batch may start
  /// before, and with offloaded states even end.
  void step(const runtime::AdamWOptions& adamw, runtime::Handler done) { decide(&adamw, std::move(done)); }
  /// Skips the step; parameters stay. `done` as for step().
  void skip(runtime::Handler done) { decide(nullptr, std::move(done)); }

  /// Calls `handler` when all states of this rank contain the newest step, before the next change; possibly at once.
  /// Call it after the decision on that step; one handler.
  void when_stored(runtime::Handler handler);
  /// Sets a guard that is called before states change. It must outlive the steps.
  void guard_with(CopyOnWriteGuard& guard) { guard_ = &guard; }

  [[nodiscard]] const Answers& answers() const noexcept { return answers_; }
  [[nodiscard]] const StateRecords& records() const noexcept { return states_; }

  [[nodiscard]] const char* name() const noexcept override { return "optimizer"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;

  /// Reads or writes elements of an array of records(). Between steps, one call at a time. Replicas of other ranks do
  /// not change.
  void access_state(StateRecords::Access access);

 private:
  /// Decides when buckets are updated, and when the update takes effect: ranks must first agree that the step is
  /// neither dropped nor clipped. One class each (commit_policy.cpp):
  ///   at once   every step takes effect: update each gradient chunk as soon as it is reduced
  ///   wait      prefetch states, wait for the agreement, then update the first layers first: the next batch needs them
  ///   flip      update chunks into spare copies as they are reduced, as if nothing were clipped; the agreement commits
  ///             or drops them
  class CommitPolicy {
   public:
    /// Creates the policy of the optimizer's plan and fills its sweeps.
    [[nodiscard]] static std::unique_ptr<CommitPolicy> make(Optimizer& optimizer);
    virtual ~CommitPolicy() = default;

    /// The pipeline is free for storing_.front().
    virtual void begin_states() = 0;
    /// The gradients of a chunk are reduced.
    virtual void reduced(const ChunkSchedule::Chunk& chunk) = 0;
    /// Decision on the newest step: commit with these options, or skip().
    virtual void counts(const runtime::AdamWOptions& adamw) = 0;
    virtual void skips() = 0;
    /// All parameters of a step are refreshed, and the sweeps are reset.
    virtual void refreshed() {}
  };
  class CommitAtOnce;
  class CommitWait;
  class CommitFlip;

  /// A step from its start until all its work has finished.
  struct BatchStep {
    runtime::AdamWOptions adamw;
    std::optional<bool> counts;      ///< decision: committed or skipped
    bool as_ahead = false;           ///< committed with the initial `adamw`
    std::vector<std::size_t> ready;  ///< buckets reduced while the previous step's states were being stored
    std::size_t bundles_missing = 0;
    int parts_missing = 3;  ///< pending phases: decision, parameters, states
    runtime::Duration answered;
    runtime::Handler stored;  ///< when_stored()
    runtime::Handler done;
  };

  // Functions for the policies.

  /// Returns whether the newest step is storing_.front().
  [[nodiscard]] bool newest_has_pipeline() const { return storing_.front() == newest_; }
  /// Pipeline whose stages write to this copy; the first one that changes it calls the guard.
  [[nodiscard]] std::unique_ptr<offload::BucketPipeline> make_pipeline(const BundleSweep& round,
                                                                       offload::CommitMode commit_mode,
                                                                       StateRecords::Copy to,
                                                                       offload::BucketStages stages);
  /// Stages of committed updates: fetch, update, store.
  [[nodiscard]] offload::BucketStages step_stages();
  /// Creates the sweep of committed updates, and its stage `refresh`.
  void make_steps(const std::vector<std::size_t>& order, offload::CommitMode commit_mode,
                  offload::BucketStages stages);
  /// Starts its pipeline for storing_.front().
  void begin_steps();
  void tell_in_stream_order(const ChunkSchedule::Bucket& bucket);
  /// Selects a sweep; its first `bundles` start as soon as buffers are free.
  void work_on(BundleSweep& round, std::size_t bundles);
  /// Ends the newest step's refresh without a change of parameters.
  void keep_parameters();

  /// Commits the step with these options, or skips it.
  void decide(const runtime::AdamWOptions* adamw, runtime::Handler done);
  void begin_bundles();
  void ready(std::size_t bucket);
  void bundle_here(std::size_t bundle);
  [[nodiscard]] BucketStep::Operands operands(const BundleSweep& round, const offload::BucketPass& pass) const;
  void bucket_stepped(std::size_t bundle);
  void bundle_refreshed();
  /// The states of storing_.front() are stored.
  void stored();
  void part_over(BatchStep& step);

  runtime::EventLoop* loop_;
  const ModelShare* share_;
  Plan plan_;
  GradientGather gradients_;
  StateRecords states_;
  BucketStep step_;
  ParameterRefresh refresh_;
  bool in_stream_order_;          // only the compute stream reads parameters, so its order suffices
  BundleSweep steps_;             // committed updates
  BundleSweep* round_ = &steps_;  // sweep whose bundles are started

  std::deque<std::shared_ptr<BatchStep>> storing_;     // steps with states to store; the first is in the pipeline
  std::deque<std::shared_ptr<BatchStep>> refreshing_;  // steps with parameters to refresh
  std::shared_ptr<BatchStep> newest_;
  CopyOnWriteGuard* guard_ = nullptr;  // null: no snapshots
  Answers answers_;
  std::unique_ptr<CommitPolicy> commit_;  // uses all of the above
};

}  // namespace ranvier::actors
