// The optimizer's step bucket by bucket (Myelin §V-C): as soon as the gradient of a bucket is reduced its states
// pass through fetch → compute → store and refresh, while other buckets are in other stages and the next chunk is
// being reduced. What the stages do is the caller's; here is when.
//
//   fetch     the bucket's states into a slot, from a tier
//   compute   the step, in the slot
//   store     the slot back to the tier    } both at a time, after which the slot is free
//   refresh   the parameters from the slot }
//
//   pipeline.begin([](bool counted) { … });      // each step
//   pipeline.ready(bucket);                      // each bucket once, as its gradient comes
//   pipeline.answer(true);                       // where a step must wait for a global answer
//
// Buckets are fetched in the order of their numbers, ahead of their gradients, as far as there are slots: number
// them as they become ready. That they become ready must not depend on this pipeline. Loop thread only.
#pragma once

#include "runtime/event_loop.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace ranvier::offload {

/// No step takes effect before the whole job knows that it counts: finite gradients, the factor to clip by.
enum class CommitMode {
  always,      ///< every step counts; nobody answers
  on_resolve,  ///< fetches go ahead, compute waits for the answer (it needs the factor). No more memory; what is
               ///< left of fetch, compute and store comes after the reduction
  by_flip,  ///< all stages go ahead, into spare copies that the caller has count once the step does. Twice the states
            ///< in the tier, and whatever else refresh writes
};

/// One bucket's way through a step.
struct BucketPass {
  std::size_t bucket = 0;
  std::size_t slot = 0;  ///< of `depth`
};

struct BucketStages {
  /// Starts its work and returns; calls `done` once, on the loop, later or at once.
  using Stage = std::function<void(const BucketPass& pass, runtime::Handler done)>;

  Stage fetch;
  Stage compute;
  Stage store;
  Stage refresh;
};

struct BucketPipelineOptions {
  std::size_t buckets = 0;
  std::size_t depth = 3;  ///< slots: one bucket each to fetch, compute and store at a time
  CommitMode commit_mode = CommitMode::always;
};

class BucketPipeline {
 public:
  /// The loop outlives the pipeline, the pipeline the loop's last run.
  BucketPipeline(runtime::EventLoop& loop, const BucketPipelineOptions& options, BucketStages stages);
  ~BucketPipeline();

  /// Begins a step and starts to fetch. Calls `done` on the loop, after this returned, when every bucket was
  /// announced as ready and has left, and says whether the step counted; then the next may begin. Nothing of a step
  /// that does not count is stored or refreshed, but by_flip.
  void begin(std::function<void(bool counted)> done);

  /// The gradient of `bucket` is there. Each bucket once in a step, in any order, whatever the answer.
  void ready(std::size_t bucket);

  /// Whether the step counts; once in a step, unless counting is always. A step that does not stops as soon as its
  /// stages at work are done.
  void resolve(bool counts);

  /// Slots in use at most so far.
  [[nodiscard]] std::size_t max_slots() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::offload
