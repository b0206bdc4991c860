#include "actors/rank/fault_injection.hpp"

#include "runtime/base/error.hpp"

#include <chrono>
#include <limits>
#include <thread>
#include <utility>

namespace ranvier::actors {

FaultInjection::FaultInjection(const RankContext& context, const RankPlan& plan, StageActor& stage,
                               GradientSync& gradients)
    : context_(&context), stage_(&stage), gradients_(&gradients) {
  if (plan.options.fault && plan.options.fault->rank == plan.rank) fault_ = plan.options.fault;
}

bool FaultInjection::before_passes(std::int64_t step) {
  if (!fault_ || fault_->step != step) return false;
  switch (fault_->kind) {
    case Kind::throws:
      fail(ErrorCode::internal, "fault injected at step {}", step);
    case Kind::hangs:
      return true;
    case Kind::overflow:
      gradients_->microbatches().spoil(std::numeric_limits<float>::infinity());
      return false;
    case Kind::nan:
      gradients_->microbatches().spoil(std::numeric_limits<float>::quiet_NaN());
      return false;
    case Kind::slow:
      stage_->timer().slow_down(fault_->times);
      return false;
    case Kind::spike:   // see loss_factor()
    case Kind::damage:  // see damage()
      return false;
    case Kind::stream:
      context_->compute.launch([](runtime::ComputePool&) {
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
      });
      return false;
    case Kind::file:
      if (!context_->tiers.lose_next_request())
        fail(ErrorCode::usage, "RANVIER_FAULT needs states in files; add `offload` infinity-nvme `nvme` DIR");
      return false;
  }
  return false;
}

double FaultInjection::loss_factor(std::int64_t step) const {
  return fault_ && fault_->step == step && fault_->kind == Kind::spike ? 1000 : 1;
}

std::optional<StateKind> FaultInjection::damage(std::int64_t step) {
  if (!fault_ || fault_->kind != Kind::damage || step < fault_->step) return std::nullopt;
  return std::exchange(fault_, std::nullopt)->array;
}

}  // namespace ranvier::actors
