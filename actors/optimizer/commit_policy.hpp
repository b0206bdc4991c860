// Decides when optimizer buckets are updated, and when the update takes effect: ranks must first agree that the step is
// neither dropped nor clipped. Private to Optimizer. Loop thread only. One class each:
//   at once   every step takes effect: update each gradient chunk as soon as it is reduced
//   wait      prefetch states, wait for the agreement, then update the first layers first: the next batch needs them
//   flip      update chunks into spare copies as they are reduced, as if nothing were clipped; the agreement commits or
//             drops them
#pragma once

#include "actors/optimizer/optimizer.hpp"

#include <memory>
#include <vector>

namespace ranvier::actors {

class CommitPolicy {
 public:
  /// Creates the policy of a plan and fills the sweeps of `optimizer`, which owns it.
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

 protected:
  using BatchStep = Optimizer::BatchStep;

  explicit CommitPolicy(Optimizer& optimizer) : o_(&optimizer) {}

  // Access to the optimizer for derived classes.

  [[nodiscard]] BundleSweep& steps() { return o_->steps_; }
  [[nodiscard]] const ModelShare& share() const { return *o_->share_; }
  [[nodiscard]] StateRecords& states() { return o_->states_; }
  [[nodiscard]] BucketStep& step() { return o_->step_; }
  [[nodiscard]] Optimizer::Answers& answers() { return o_->answers_; }
  [[nodiscard]] GradientGather& gradients() { return o_->gradients_; }
  [[nodiscard]] std::shared_ptr<BatchStep> storing() const { return o_->storing_.front(); }
  [[nodiscard]] std::shared_ptr<BatchStep> newest() const { return o_->newest_; }
  /// Returns whether the newest step is storing_.front().
  [[nodiscard]] bool newest_has_pipeline() const { return storing() == newest(); }
  [[nodiscard]] BucketStep::Operands operands(const BundleSweep& round, const offload::BucketPass& pass) const {
    return o_->operands(round, pass);
  }
  /// Pipeline whose stages write to this copy; the first one that changes it calls the guard.
  [[nodiscard]] std::unique_ptr<offload::BucketPipeline> make_pipeline(const BundleSweep& round,
                                                                       offload::CommitMode commit_mode,
                                                                       StateRecords::Copy to,
                                                                       offload::BucketStages stages);

  /// Bundles in the order in which chunks are reduced.
  [[nodiscard]] std::vector<std::size_t> as_reduced() const;
  /// Creates the sweep of committed updates: fetch, update, store.
  void make_steps(const std::vector<std::size_t>& order, offload::CommitMode commit_mode);
  /// Updates one bucket of that sweep.
  void compute(const offload::BucketPass& pass, runtime::Handler done);
  void bucket_stepped(const offload::BucketPass& pass) { o_->bucket_stepped(steps().buckets[pass.bucket].bundle); }
  void tell_in_stream_order(const ChunkSchedule::Bucket& bucket);

  /// Selects a sweep; its first `bundles` start as soon as buffers are free.
  void work_on(BundleSweep& round, std::size_t bundles);
  void begin_bundles() { o_->begin_bundles(); }
  /// Starts the pipeline of committed updates for storing_.front().
  void begin_steps();
  void stored() { o_->stored(); }
  void ready(std::size_t bucket) { o_->ready(bucket); }
  /// Ends the newest step's refresh without a change of parameters.
  void keep_parameters();

 private:
  using Stage = offload::BucketStages::Stage;
  [[nodiscard]] Stage guarded(const BundleSweep& round, StateRecords::Copy to, Stage stage);

  Optimizer* o_;
};

}  // namespace ranvier::actors
