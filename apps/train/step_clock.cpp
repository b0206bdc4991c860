#include "apps/train/step_clock.hpp"

#include "runtime/base/arithmetic.hpp"

#include <fmt/core.h>

namespace ranvier::apps {

void StepClock::start(std::int64_t done, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  step_ = done + 1;
  began_ = now;
}

void StepClock::done(std::int64_t step, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (seconds_.size() == most) seconds_.erase(seconds_.begin());
  seconds_.push_back(std::chrono::duration<double>(now - began_).count());
  step_ = step + 1;
  began_ = now;
}

StepClock::Expectation StepClock::expectation(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  Expectation expectation{.step = step_, .seconds = std::chrono::duration<double>(now - began_).count()};
  if (seconds_.empty()) return expectation;
  expectation.usual_seconds = runtime::median(seconds_);
  return expectation;
}

std::string to_string(const StepClock::Expectation& expectation) {
  const auto& [step, seconds, usual] = expectation;
  if (!usual) return fmt::format("the first, which has taken {:.2g} s", seconds);
  const double left = *usual - seconds;
  if (left >= 1) return fmt::format("in about {:.2g} s", left);
  if (seconds < 2 * *usual + 1) return "within about a second";
  return fmt::format("which has taken {:.2g} s (median step: {:.2g} s)", seconds, *usual);
}

}  // namespace ranvier::apps
