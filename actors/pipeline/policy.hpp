// Which direction a stage computes next. A policy chooses only that: each direction runs strictly in the
// order of the microbatches, whatever arrives when. Pure functions of counts; any thread.
#pragma once

#include <string_view>

namespace ranvier::actors {

enum class Policy {
  message_driven,  ///< whatever can run; backward first (Myelin §III-C, Algorithm 2)
  one_f_one_b,     ///< a fixed alternation of forward and backward after a warm-up (PipeDream-flush)
  gpipe,           ///< all forward passes, then all backward passes, in waves of the pipeline limit
};

/// "message-driven", "1f1b", "gpipe"; throws ErrorCode::usage for anything else.
[[nodiscard]] Policy policy_from(std::string_view name);
[[nodiscard]] std::string_view to_string(Policy policy) noexcept;

enum class Direction { none, forward, backward };

struct PipelineProgress {
  int stage = 0;
  int stages = 1;
  int microbatches = 1;
  int limit = 1;                ///< most microbatches in flight
  int forwards = 0;             ///< started
  int backwards = 0;            ///< started
  bool forward_ready = false;   ///< the next forward pass has its input and a slot
  bool backward_ready = false;  ///< the next backward pass has its gradient
};

/// What to start now; none: wait for a message.
[[nodiscard]] Direction next_direction(Policy policy, const PipelineProgress& progress);

}  // namespace ranvier::actors
