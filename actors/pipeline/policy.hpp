// What a stage computes next. A policy chooses only that: each direction runs strictly in the order of the
// microbatches, whatever arrives when, and so do the weight gradients that wait. Pure functions of counts; any thread.
#pragma once

#include <string_view>

namespace ranvier::actors {

enum class Policy {
  message_driven,  ///< whatever can run; backward first (Myelin §III-C, Algorithm 2)
  one_f_one_b,     ///< a fixed alternation of forward and backward after a warm-up (PipeDream-flush)
  gpipe,           ///< all forward passes, then all backward passes, in waves of the pipeline limit
  zero_bubble,     ///< whatever can run, forward passes first while the pipeline fills; weight gradients wait
  zb_h1,  ///< 1F1B whose weight gradients wait in a fixed order (ZB-H1 of "Zero Bubble Pipeline Parallelism"); of
          ///< stages with one chunk
};

/// "message-driven", "1f1b", "gpipe", "zero-bubble", "zb-h1"; throws ErrorCode::usage for anything else.
[[nodiscard]] Policy policy_from(std::string_view name);
[[nodiscard]] std::string_view to_string(Policy policy) noexcept;

/// Whether the order of the passes follows from when messages come, so that rows differ in it.
[[nodiscard]] bool messages_decide(Policy policy) noexcept;
/// Whether weight gradients wait without anybody asking for it.
[[nodiscard]] bool defers_weights(Policy policy) noexcept;

enum class Direction { none, forward, backward, weights };

struct PipelineProgress {
  int stage = 0;
  int stages = 1;
  int chunks = 1;  ///< slices of the model on a stage; passes are counted over all of them
  int microbatches = 1;
  int limit = 1;                ///< most microbatches in flight, in each chunk
  int forwards = 0;             ///< started
  int backwards = 0;            ///< started
  bool forward_ready = false;   ///< the next forward pass has its input and a slot
  bool backward_ready = false;  ///< the next backward pass has its gradient, and a place for what waits after it
  // Where weight gradients wait:
  int deferred_limit = 0;      ///< most microbatches whose weight gradients do, in each chunk; 0: they are part of
                               ///< backward passes
  int weights = 0;             ///< weight gradients that are done, counted as passes
  bool weights_ready = false;  ///< the next weight gradients can be computed
};

/// What to start now; none: wait for a message. Weight gradients that wait are computed where nothing else can be,
/// unless a pipeline that drains has time for them later; under zb_h1 where its order says so.
[[nodiscard]] Direction next_direction(Policy policy, const PipelineProgress& progress);

}  // namespace ranvier::actors
