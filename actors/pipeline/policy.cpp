#include "actors/pipeline/policy.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::actors {

Policy policy_from(std::string_view name) {
  for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}) {
    if (to_string(policy) == name) return policy;
  }
  fail(ErrorCode::usage, "--policy {}: choose message-driven, 1f1b or gpipe", name);
}

std::string_view to_string(Policy policy) noexcept {
  switch (policy) {
    case Policy::message_driven:
      return "message-driven";
    case Policy::one_f_one_b:
      return "1f1b";
    case Policy::gpipe:
      return "gpipe";
  }
  return "?";
}

namespace {

Direction if_ready(Direction wanted, const PipelineProgress& p) {
  return (wanted == Direction::forward ? p.forward_ready : p.backward_ready) ? wanted : Direction::none;
}

}  // namespace

Direction next_direction(Policy policy, const PipelineProgress& p) {
  switch (policy) {
    case Policy::message_driven:
      return p.backward_ready ? Direction::backward : p.forward_ready ? Direction::forward : Direction::none;
    case Policy::one_f_one_b: {
      // Stages nearer to the front keep more microbatches in flight, the last one none beside its own.
      const int warm_up = std::min(p.stages - 1 - p.stage, p.limit - 1);
      const bool fill = p.forwards < p.microbatches && p.forwards - p.backwards <= warm_up;
      return if_ready(fill ? Direction::forward : Direction::backward, p);
    }
    case Policy::gpipe: {
      const int wave_end = std::min((p.backwards / p.limit + 1) * p.limit, p.microbatches);
      return if_ready(p.forwards < wave_end ? Direction::forward : Direction::backward, p);
    }
  }
  return Direction::none;
}

}  // namespace ranvier::actors
