#include "actors/schedule/policy.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"

#include <algorithm>

namespace ranvier::actors {

Policy policy_from(std::string_view name) {
  for (const Policy policy : all_policies)
    if (to_string(policy) == name) return policy;
  fail(ErrorCode::usage, "`policy` is unknown: {}; use message-driven, 1f1b, gpipe, zero-bubble or zb-h1", name);
}

std::string_view to_string(Policy policy) noexcept {
  return runtime::enum_name<Policy::zb_h1>(policy, {"message-driven", "1f1b", "gpipe", "zero-bubble", "zb-h1"});
}

bool messages_decide(Policy policy) noexcept {
  return policy == Policy::message_driven || policy == Policy::zero_bubble;
}

bool defers_weights(Policy policy) noexcept { return policy == Policy::zero_bubble || policy == Policy::zb_h1; }

namespace {

Direction if_ready(Direction wanted, const PipelineProgress& p) {
  return (wanted == Direction::forward ? p.forward_ready : p.backward_ready) ? wanted : Direction::none;
}

/// Number of forward passes that 1F1B starts before the first backward pass, minus one. Stages nearer to the front keep
/// more microbatches in flight; the last stage keeps one.
///
/// With several chunks, a group first passes all chunks except the last, and each stage is two passes ahead of the next
/// one (Narayanan et al. 2021, §2.2). slice_slots() provides the slots for that.
int warm_up(const PipelineProgress& p) {
  const int behind = p.stages - 1 - p.stage;
  if (p.chunks == 1) return std::min(behind, p.limit - 1);
  return (p.chunks - 1) * p.stages + 2 * behind;
}

bool fills(const PipelineProgress& p) {
  return p.forwards < p.chunks * p.microbatches && p.forwards - p.backwards <= warm_up(p);
}

/// Returns whether a forward pass that 1F1B would not start yet goes before deferred weight gradients. One does, so
/// that an early next stage has work, and as many more as the pipeline limit exceeds the number of stages. More would
/// fill slots that only weight gradients free.
///
/// With several chunks, each chunk has its own slots, which are the only limit. A common limit could block the very
/// pass that the next backward pass waits for.
bool may_run_ahead(const PipelineProgress& p) {
  return p.chunks > 1 || p.forwards - p.backwards <= warm_up(p) + 1 + std::max(0, p.limit - p.stages);
}

/// Next pass, ignoring deferred weight gradients.
Direction next_pass(Policy policy, const PipelineProgress& p) {
  switch (policy) {
    case Policy::message_driven:
      // With several chunks, a backward pass during warm-up delays the round of all chunks.
      if (p.chunks > 1 && p.forward_ready && fills(p)) return Direction::forward;
      return p.backward_ready ? Direction::backward : p.forward_ready ? Direction::forward : Direction::none;
    case Policy::zero_bubble:
      if (p.forward_ready && fills(p)) return Direction::forward;
      if (p.backward_ready) return Direction::backward;
      return p.forward_ready && may_run_ahead(p) ? Direction::forward : Direction::none;
    case Policy::one_f_one_b:
    case Policy::zb_h1:
      return if_ready(fills(p) ? Direction::forward : Direction::backward, p);
    case Policy::gpipe: {
      const int wave = p.chunks * p.limit;
      const int wave_end = std::min((p.backwards / wave + 1) * wave, p.chunks * p.microbatches);
      return if_ready(p.forwards < wave_end ? Direction::forward : Direction::backward, p);
    }
  }
  return Direction::none;
}

/// Number of microbatches with deferred weight gradients in ZB-H1's order before the next backward pass: one per
/// previous stage, unless limits allow fewer.
int waiting_in_zb_h1(const PipelineProgress& p) {
  return std::min({p.stage, p.limit - 1 - warm_up(p), p.deferred_limit - 1});
}

bool zb_h1_has_weights_next(const PipelineProgress& p) {
  return p.backwards - p.weights > waiting_in_zb_h1(p) || p.backwards == p.microbatches;
}

/// Returns whether the stage stays free for the next gradient instead of computing weight gradients, which would delay
/// the gradient here and on all previous stages.
///
/// When the pipeline drains, weight gradients can run while the last gradient passes the previous stages. With even
/// stages there is time for as many as ZB-H1 defers; 3/4 of them leave a margin for uneven stages. With several chunks,
/// gradients arrive so often that waiting gains nothing.
bool drains(const PipelineProgress& p) {
  return p.chunks == 1 && p.forwards == p.microbatches && p.backwards < p.microbatches &&
         4 * (p.backwards - p.weights) <= 3 * waiting_in_zb_h1(p);
}

}  // namespace

Direction next_direction(Policy policy, const PipelineProgress& p) {
  if (p.deferred_limit == 0) return next_pass(policy, p);
  const Direction weights = p.weights_ready ? Direction::weights : Direction::none;
  if (policy == Policy::zb_h1 && zb_h1_has_weights_next(p)) return weights;
  const Direction pass = next_pass(policy, p);
  if (pass != Direction::none || policy == Policy::zb_h1 || drains(p)) return pass;
  return weights;
}

}  // namespace ranvier::actors
