// The step of the optimizer, bucket by bucket as the gradients of chunks come (Myelin §V-C, chunk_schedule.hpp): AdamW
// on the part of each unit whose optimizer states this rank holds, then the refreshed parameters to exactly the ranks
// that need them (PaRO §3.4, update phase).
//
//   reduced chunk → [gradient_gather] → fetch of states [state_records] → AdamW [bucket_step] → store
//                 → [parameter_refresh]
//
// When a bucket is stepped and when that counts is the commit policy's (commit_policy.hpp). The next batch may begin
// with the first layers while later ones are still under way. Loop thread only.
#pragma once

#include "actors/optimizer/bucket_step.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/optimizer/gradient_gather.hpp"
#include "actors/optimizer/parameter_refresh.hpp"
#include "actors/optimizer/copy_on_write_guard.hpp"
#include "actors/optimizer/state_records.hpp"
#include "actors/rank/actor.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

class CommitPolicy;

class Optimizer final : public Actor {
 public:
  struct Options {
    /// Nothing of a step depends on an answer of all ranks: no clipping, no loss scale that overflow changes.
    bool every_step_counts = false;
  };
  struct Plan {
    bool every_step_counts = false;
    bool flips = false;     ///< Commit::flip, where an answer is waited for
    std::size_t depth = 1;  ///< buckets whose states are on the device at a time
    GradientGather::Plan gradients;
    StateRecords::Plan states;
    BucketStep::Plan step;
    ParameterRefresh::Plan refresh;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

  /// What answers came to, and the time from them to when everything was as the step leaves it.
  struct Answers {
    std::int64_t steps = 0;
    std::int64_t skipped = 0;
    std::int64_t flipped = 0;        ///< counted as they were stepped ahead
    std::int64_t again = 0;          ///< were clipped, so stepped again
    std::int64_t buckets_ahead = 0;  ///< of those that flipped: stepped before the answer
    std::int64_t buckets = 0;        ///< likewise, all of them
    double seconds = 0;              ///< over all steps
  };

  /// `parameter_records` is null where parameters live on the device, `gradients` where sums of gradients do.
  Optimizer(const RankContext& context, const ModelShare& share, const Plan& plan, ParameterStore& parameters,
            ParameterRecords* parameter_records, GradientRecords* gradients);
  ~Optimizer() override;

  /// A batch begins, once the one before was answered: the first states are fetched. `unclipped` is for its step if
  /// that counts and nothing is clipped.
  void begin(const runtime::AdamWOptions& unclipped);
  /// The gradients of a chunk are reduced; in the order of the chunks.
  void reduced(std::size_t chunk);
  /// All passes are over and the step counts. `done` runs once all states of this rank are as the step leaves them; the
  /// next batch may begin before, and where states live off the device even end.
  void step(const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// The step does not count: parameters stay. `done` likewise.
  void skip(runtime::Handler done);

  /// Calls `handler` as soon as all states of this rank are as the newest step leaves them, and before anything changes
  /// them: at once if they are. Once that step was answered; one handler.
  void when_stored(runtime::Handler handler);
  /// Is asked before states change. It outlives the steps.
  void guard_with(CopyOnWriteGuard& guard) { guard_ = &guard; }

  [[nodiscard]] const Answers& answers() const noexcept { return answers_; }
  [[nodiscard]] const StateRecords& records() const noexcept { return states_; }

  [[nodiscard]] const char* name() const noexcept override { return "optimizer"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;
  [[nodiscard]] std::vector<StateArray> state() const override { return states_.arrays(); }
  void read_state(const StateArray& array, std::size_t begin, std::span<std::byte> values,
                  runtime::Handler done) override;
  void write_state(const StateArray& array, std::size_t begin, std::span<const std::byte> values,
                   runtime::Handler done) override;
  /// Where elements of one of its arrays lie, from `begin` on and as many as follow one another there, for who fills
  /// them before the training; empty where the host does not reach them.
  [[nodiscard]] std::span<float> state_memory(const StateArray& array, std::size_t begin) const {
    return states_.memory(array, begin);
  }

 private:
  friend class CommitPolicy;

  /// A batch's step, from its begin until nothing of it is under way.
  struct BatchStep {
    runtime::AdamWOptions adamw;
    std::optional<bool> counts;      ///< the answer
    bool as_ahead = false;           ///< it counts, with the `adamw` that it began with
    std::vector<std::size_t> ready;  ///< buckets that came while the states of the step before were being stored
    std::size_t bundles_missing = 0;
    int parts_missing = 3;  ///< the answer, the parameters, the states
    runtime::Duration answered;
    runtime::Handler stored;  ///< when_stored()
    runtime::Handler done;
  };

  [[nodiscard]] std::unique_ptr<offload::BucketPipeline> make_pipeline(const BundleSweep& round,
                                                                       offload::CommitMode commit_mode,
                                                                       offload::BucketStages stages) const;
  void begin_bundles();
  void ready(std::size_t bucket);
  void bundle_here(std::size_t bundle);
  [[nodiscard]] BucketStep::Operands operands(const BundleSweep& round, const offload::BucketPass& pass) const;
  void bucket_stepped(std::size_t bundle);
  void bundle_refreshed();
  /// The states of the first of storing_ are where they belong.
  void stored();
  void part_over(BatchStep& step);

  runtime::EventLoop* loop_;
  const ModelShare* share_;
  Plan plan_;
  GradientGather gradients_;
  StateRecords states_;
  BucketStep step_;
  ParameterRefresh refresh_;
  bool in_stream_order_;          // nobody reads parameters but the compute stream, whose order is enough
  BundleSweep steps_;             // what counts
  BundleSweep* round_ = &steps_;  // whose bundles are begun

  std::deque<std::shared_ptr<BatchStep>> storing_;  // whose states are not all stored; the first is in the pipeline
  std::deque<std::shared_ptr<BatchStep>> refreshing_;  // whose parameters are not all refreshed
  std::shared_ptr<BatchStep> newest_;
  CopyOnWriteGuard* guard_ = nullptr;  // null: nobody copies states
  Answers answers_;
  std::unique_ptr<CommitPolicy> commit_;  // uses all of the above
};

}  // namespace ranvier::actors
