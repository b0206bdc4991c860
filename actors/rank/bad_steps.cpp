#include "actors/rank/bad_steps.hpp"

#include "runtime/base/names.hpp"

#include <fmt/core.h>

#include <cmath>

namespace ranvier::actors {

using Action = BadStepOptions::Action;
using Reason = BadStep::Reason;

const char* to_string(Action action) noexcept {
  return runtime::enum_name<Action::rollback>(action, {"stop", "skip", "rollback"});
}

const char* to_string(Reason reason) noexcept {
  return runtime::enum_name<Reason::loss_spike>(reason, {"loss", "gradient norm", "spike"});
}

std::string describe(const BadStep& bad, const BadStepOptions& options) {
  std::string text = bad.reason == Reason::loss_spike
                         ? fmt::format("loss {:.5g} is above {:g} times the recent median {:.5g}", bad.loss,
                                       options.spike_factor, bad.median)
                         : fmt::format("gradient norm is {:.6g} at loss {:.6g}", bad.gradient_norm, bad.loss);
  if (bad.in_a_row > 1) text += fmt::format("; bad steps in a row: {}", bad.in_a_row);
  return text;
}

std::string describe_end(const BadStep& bad, const BadStepOptions& options) {
  const bool given_up = options.action != Action::stop;
  return fmt::format(
      "{}{}; lower `learning_rate`, {}{}", describe(bad, options),
      given_up ? fmt::format(", more than `bad_steps_limit` {}", options.limit) : "",
      bad.reason == Reason::loss_spike ? "or raise `spike_factor`" : "or use `precision` fp32 or bf16",
      given_up ? "" : ", or use `bad_steps` skip or rollback");
}

std::optional<BadStep> BadSteps::judge(std::int64_t step, double loss, double gradient_norm) {
  BadStep bad{.step = step, .loss = loss, .gradient_norm = gradient_norm};
  const RecentMedian& losses = state_.losses;
  if (!std::isfinite(loss)) {
    bad.reason = Reason::loss_not_finite;
  } else if (!std::isfinite(gradient_norm)) {
    bad.reason = Reason::norm_not_finite;
  } else if (options_.spike_factor > 0 && losses.numbers().size() >= fewest_losses &&
             loss > options_.spike_factor * losses.value()) {
    bad.reason = Reason::loss_spike;
    bad.median = losses.value();
  } else {
    state_.losses.add(loss);
    if (step >= state_.row.last) state_.row.count = 0;
    return std::nullopt;
  }
  bad.action = count(step);
  bad.in_a_row = state_.row.count;
  return bad;
}

Action BadSteps::damaged(std::int64_t step) {
  const Action action = count(step + 1);  // the step itself was good and will be good when repeated
  return action == Action::rollback ? action : Action::stop;
}

Action BadSteps::count(std::int64_t last_bad) {
  state_.row.last = last_bad;
  return ++state_.row.count > options_.limit ? Action::stop : options_.action;
}

}  // namespace ranvier::actors
