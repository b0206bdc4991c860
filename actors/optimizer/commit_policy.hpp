// When buckets are stepped, and from when on that counts: no step takes effect before the whole job knows that it
// does. One class for each of
//
//   at once   every step counts, so a chunk is stepped as soon as it is reduced, while others still are
//   wait      states are fetched ahead and the step waits for the answer; it goes from the front then, so that the next
//             batch can begin with the first layers
//   flip      chunks are stepped as they are reduced, as if the step counted and nothing were clipped, from the states
//             that count into spare copies, and layers' parameters stay; the answer decides what becomes of them
//
// Implementation of Optimizer; nobody else includes this. Loop thread only.
#pragma once

#include "actors/optimizer/optimizer.hpp"

#include <memory>
#include <vector>

namespace ranvier::actors {

class CommitPolicy {
 public:
  /// The policy of a plan; fills the rounds of `optimizer`, which owns it.
  [[nodiscard]] static std::unique_ptr<CommitPolicy> make(Optimizer& optimizer);
  virtual ~CommitPolicy() = default;

  /// The first of storing_ has the pipeline for itself.
  virtual void begin_states() = 0;
  /// The gradients of a chunk are reduced.
  virtual void reduced(const ChunkSchedule::Chunk& chunk) = 0;
  /// The newest step was answered: it counts, with this AdamW, or it does not.
  virtual void counts(const runtime::AdamWOptions& adamw) = 0;
  virtual void skips() = 0;
  /// All parameters of a step are refreshed, and the rounds rewound.
  virtual void refreshed() {}

 protected:
  using BatchStep = Optimizer::BatchStep;

  explicit CommitPolicy(Optimizer& optimizer) : o_(&optimizer) {}

  // What policies do with the optimizer.

  [[nodiscard]] BundleSweep& steps() { return o_->steps_; }
  [[nodiscard]] const ModelShare& share() const { return *o_->share_; }
  [[nodiscard]] StateRecords& states() { return o_->states_; }
  [[nodiscard]] BucketStep& step() { return o_->step_; }
  [[nodiscard]] Optimizer::Answers& answers() { return o_->answers_; }
  [[nodiscard]] GradientGather& gradients() { return o_->gradients_; }
  [[nodiscard]] std::shared_ptr<BatchStep> storing() const { return o_->storing_.front(); }
  [[nodiscard]] std::shared_ptr<BatchStep> newest() const { return o_->newest_; }
  /// Whether the newest step is the first of storing_.
  [[nodiscard]] bool newest_has_pipeline() const { return storing() == newest(); }
  [[nodiscard]] BucketStep::Operands operands(const BundleSweep& round, const offload::BucketPass& pass) const {
    return o_->operands(round, pass);
  }
  /// Of stages that leave states in this copy. The first one that changes it asks the guard.
  [[nodiscard]] std::unique_ptr<offload::BucketPipeline> make_pipeline(const BundleSweep& round,
                                                                       offload::CommitMode commit_mode,
                                                                       StateRecords::Copy to,
                                                                       offload::BucketStages stages);

  /// Bundles in the order in which chunks are reduced.
  [[nodiscard]] std::vector<std::size_t> as_reduced() const;
  /// Makes the round of what counts, whose states are fetched, stepped and stored.
  void make_steps(const std::vector<std::size_t>& order, offload::CommitMode commit_mode);
  /// Likewise, of one bucket.
  void compute(const offload::BucketPass& pass, runtime::Handler done);
  void bucket_stepped(const offload::BucketPass& pass) { o_->bucket_stepped(steps().buckets[pass.bucket].bundle); }
  void tell_in_stream_order(const ChunkSchedule::Bucket& bucket);

  /// Works on this round from now on, its first `bundles` as soon as there are places.
  void work_on(BundleSweep& round, std::size_t bundles);
  void begin_bundles() { o_->begin_bundles(); }
  /// Begins the pipeline of what counts, for the first of storing_.
  void begin_steps();
  void stored() { o_->stored(); }
  void ready(std::size_t bucket) { o_->ready(bucket); }
  /// No parameter changes: the newest step's refresh is over.
  void keep_parameters();

 private:
  using Stage = offload::BucketStages::Stage;
  [[nodiscard]] Stage guarded(const BundleSweep& round, StateRecords::Copy to, Stage stage);

  Optimizer* o_;
};

}  // namespace ranvier::actors
