// Runs the optimizer's step bucket by bucket (Myelin §V-C). A bucket whose gradient is reduced passes through fetch →
// compute → store and refresh, while other buckets are in other stages. The caller implements the stages.
//   pipeline.begin([](bool committed) { … });    // once per step
//   pipeline.ready(bucket);                      // once per bucket, when its gradient is reduced
//   pipeline.resolve(true);                      // if a step needs a global decision
// Buckets are fetched in the order of their numbers, ahead of their gradients, while slots are free: number them in the
// order in which they become ready. Readiness must not depend on this pipeline, or it deadlocks. Buckets without a slot
// never wait for one: they are fetched when the step begins. Loop thread only.
#pragma once

#include "runtime/loop/event_loop.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace ranvier::offload {

/// When a step takes effect: only after all ranks agree to commit it (finite gradients, clipping factor).
enum class CommitMode {
  always,  ///< every step is committed without a decision
  /// Fetch runs ahead; compute waits for the decision (it needs the clipping factor). No extra memory; the rest of
  /// fetch, compute and store follows the reduction.
  on_resolve,
  /// All stages run ahead, into spare copies that the caller commits with the step. Doubles the states in the tier,
  /// and everything else that refresh writes.
  by_flip,
};

/// A bucket's pass through a step.
struct BucketPass {
  std::size_t bucket = 0;
  std::size_t slot = 0;  ///< slot index, below `depth`; 0 without a slot
};

struct BucketStages {
  /// Starts the work and returns; calls `done` once on the loop, also during the call.
  using Stage = std::function<void(const BucketPass& pass, runtime::Handler done)>;

  Stage fetch;    ///< loads the bucket's states from a tier into the slot
  Stage compute;  ///< updates the states in the slot
  Stage store;    ///< writes the slot to the tier, at the same time as `refresh`; after both the slot is free
  Stage refresh;  ///< updates the layers' parameters from the slot
};

struct BucketPipelineOptions {
  std::size_t buckets = 0;
  std::size_t depth = 3;  ///< slots: one bucket each in fetch, compute and store
  CommitMode commit_mode = CommitMode::always;
  std::vector<bool> without_slot = {};  ///< by bucket: it needs no slot; empty: all need one
};

class BucketPipeline {
 public:
  /// The loop must outlive the pipeline; the pipeline must outlive the loop's last run.
  BucketPipeline(runtime::EventLoop& loop, const BucketPipelineOptions& options, BucketStages stages);

  /// Starts a step and fetching. Calls `done(committed)` on the loop, after this returned, when every bucket has left
  /// the pipeline; then the next step may start. A step that is not committed stores and refreshes nothing, except
  /// by_flip, and ends when its running stages are done.
  void begin(std::function<void(bool counted)> done);

  /// Reports that the gradient of `bucket` is reduced. Once per bucket and step, in any order, before or after the
  /// decision; not needed if the step is not committed.
  void ready(std::size_t bucket);

  /// Reports whether the step is committed; once per step, unless `commit_mode` is `always`.
  void resolve(bool counts);

 private:
  struct Bucket {
    bool fetched = false;  ///< and not computed yet
    bool ready = false;
    std::size_t slot = 0;
  };

  [[nodiscard]] BucketPass pass_of(std::size_t bucket) const { return {bucket, buckets_[bucket].slot}; }
  [[nodiscard]] bool is_skipped() const { return counts_ == false; }

  [[nodiscard]] bool needs_slot(std::size_t bucket) const {
    return options_.without_slot.empty() || !options_.without_slot[bucket];
  }

  void fetch(std::size_t bucket);
  void fetch_ahead();
  void compute_if_due(std::size_t bucket);
  void drop(std::size_t bucket);
  void finish_if_done();

  runtime::EventLoop& loop_;
  const BucketPipelineOptions options_;
  const BucketStages stages_;
  std::vector<std::size_t> free_slots_;

  // State of the running step.
  std::function<void(bool)> done_;  ///< empty between steps
  std::vector<Bucket> buckets_;
  std::optional<bool> counts_;
  std::size_t next_ = 0;   ///< next bucket to fetch to a slot
  std::size_t begun_ = 0;  ///< number of fetches that were started
  std::size_t gone_ = 0;
};

}  // namespace ranvier::offload
