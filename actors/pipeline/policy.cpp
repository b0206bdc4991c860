#include "actors/pipeline/policy.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::actors {

Policy policy_from(std::string_view name) {
  for (const Policy policy :
       {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe, Policy::zero_bubble, Policy::zb_h1}) {
    if (to_string(policy) == name) return policy;
  }
  fail(ErrorCode::usage, "--policy is unknown: {}; use message-driven, 1f1b, gpipe, zero-bubble or zb-h1", name);
}

std::string_view to_string(Policy policy) noexcept {
  switch (policy) {
    case Policy::message_driven:
      return "message-driven";
    case Policy::one_f_one_b:
      return "1f1b";
    case Policy::gpipe:
      return "gpipe";
    case Policy::zero_bubble:
      return "zero-bubble";
    case Policy::zb_h1:
      return "zb-h1";
  }
  return "?";
}

bool messages_decide(Policy policy) noexcept {
  return policy == Policy::message_driven || policy == Policy::zero_bubble;
}

bool defers_weights(Policy policy) noexcept { return policy == Policy::zero_bubble || policy == Policy::zb_h1; }

namespace {

Direction if_ready(Direction wanted, const PipelineProgress& p) {
  return (wanted == Direction::forward ? p.forward_ready : p.backward_ready) ? wanted : Direction::none;
}

/// Passes that 1F1B starts before the first backward pass, less one: stages nearer to the front keep more microbatches
/// in flight, the last one none beside its own. With several chunks a group goes through all of them but the last
/// before that, and a stage is two passes ahead of the next one (Narayanan et al. 2021, §2.2); chunks have the slots
/// for that (slice_slots()).
int warm_up(const PipelineProgress& p) {
  const int behind = p.stages - 1 - p.stage;
  if (p.chunks == 1) return std::min(behind, p.limit - 1);
  return (p.chunks - 1) * p.stages + 2 * behind;
}

bool fills(const PipelineProgress& p) {
  return p.forwards < p.chunks * p.microbatches && p.forwards - p.backwards <= warm_up(p);
}

/// Whether a forward pass that 1F1B would not start yet goes before weight gradients that wait: one does, so that there
/// is something for a next stage that is early, and as many more as the pipeline limit allows beyond the stages. More
/// would fill slots that weight gradients have to free again while others wait for them. With several chunks, slots are
/// of each and bound them alone: a bound on all could hold up just the pass that the next backward pass waits for.
bool may_run_ahead(const PipelineProgress& p) {
  return p.chunks > 1 || p.forwards - p.backwards <= warm_up(p) + 1 + std::max(0, p.limit - p.stages);
}

/// The next pass, without weight gradients that wait.
Direction next_pass(Policy policy, const PipelineProgress& p) {
  switch (policy) {
    case Policy::message_driven:
      // With several chunks a backward pass that goes before the filling delays the round of all of them.
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

/// Microbatches whose weight gradients wait in ZB-H1's order before the next backward pass: as many as there are stages
/// before this one, unless limits allow fewer.
int waiting_in_zb_h1(const PipelineProgress& p) {
  return std::min({p.stage, p.limit - 1 - warm_up(p), p.deferred_limit - 1});
}

bool zb_h1_has_weights_next(const PipelineProgress& p) {
  return p.backwards - p.weights > waiting_in_zb_h1(p) || p.backwards == p.microbatches;
}

/// Whether to wait for a gradient rather than to begin weight gradients, which would delay it here and, each by as
/// much, on all stages before. When the pipeline drains there is time for them after the last gradient left, until it
/// has passed all stages before: for those that wait in ZB-H1's order where stages are even. Three quarters of them
/// leave some of it where they are not. With several chunks gradients come so often that waiting wins nothing.
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
