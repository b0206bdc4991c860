// Pipeline schedules: choice of a stage's next direction. Within a direction, and for deferred weight gradients, passes
// always run in microbatch order. Pure functions of counts; any thread.
#pragma once

#include <array>
#include <string_view>

namespace ranvier::actors {

enum class Policy {
  message_driven,  ///< any ready pass, backward first (Myelin §III-C, Algorithm 2)
  one_f_one_b,     ///< forward and backward alternate after a warm-up (PipeDream-flush)
  gpipe,           ///< all forward passes, then all backward passes, in waves of the pipeline limit
  zero_bubble,     ///< any ready pass, forward first while the pipeline fills; weight gradients are deferred
  zb_h1,  ///< 1F1B with deferred weight gradients in a fixed order (ZB-H1 of "Zero Bubble Pipeline Parallelism"); one
          ///< model chunk per rank
};

inline constexpr std::array all_policies{Policy::message_driven, Policy::one_f_one_b, Policy::gpipe,
                                         Policy::zero_bubble, Policy::zb_h1};

/// "message-driven", "1f1b", "gpipe", "zero-bubble", "zb-h1"; throws ErrorCode::usage for anything else.
[[nodiscard]] Policy policy_from(std::string_view name);
[[nodiscard]] std::string_view to_string(Policy policy) noexcept;

/// Returns whether arrival of messages decides the order of passes, which then differs between rows.
[[nodiscard]] bool messages_decide(Policy policy) noexcept;
/// Returns whether the schedule always defers weight gradients.
[[nodiscard]] bool defers_weights(Policy policy) noexcept;

enum class Direction { none, forward, backward, weights };

struct PipelineProgress {
  int stage = 0;
  int stages = 1;
  int chunks = 1;  ///< model chunks per rank; passes are counted over all of them
  int microbatches = 1;
  int limit = 1;               ///< maximum number of microbatches in flight per chunk
  int forwards = 0;            ///< started forward passes
  int backwards = 0;           ///< started backward passes
  bool forward_ready = false;  ///< the next forward pass has its input and a slot
  bool backward_ready =
      false;  ///< the next backward pass has its gradient, and a buffer for deferred weight gradients
  // With deferred weight gradients:
  int deferred_limit = 0;  ///< maximum number of deferred microbatches per chunk; 0: weight gradients are part of
                           ///< backward passes
  int weights = 0;         ///< finished weight gradients, counted as passes
  bool weights_ready = false;  ///< the next weight gradients can be computed
};

/// Direction to start now; none: wait for a message. Deferred weight gradients run when no other pass can, unless the
/// draining pipeline has time for them later; under zb_h1 in the fixed order.
[[nodiscard]] Direction next_direction(Policy policy, const PipelineProgress& progress);

}  // namespace ranvier::actors
