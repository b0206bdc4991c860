// Durations of recent steps and remaining time of the current one. Loop thread only.
#pragma once

#include "actors/rank/recent_median.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace ranvier::apps {

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts step `done` + 1.
  void start(std::int64_t done = 0, Clock::time_point now = Clock::now()) {
    step_ = done + 1;
    began_ = now;
  }
  /// Ends `step` and starts the next one.
  void done(std::int64_t step, Clock::time_point now = Clock::now()) {
    seconds_.add(std::chrono::duration<double>(now - began_).count());
    start(step, now);
  }

  /// Current step.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// When it ends: "in about 12 s", "which has taken 70 s (median step: 3.2 s)".
  [[nodiscard]] std::string expectation(Clock::time_point now = Clock::now()) const {
    const double seconds = std::chrono::duration<double>(now - began_).count(), usual = seconds_.value();
    if (seconds_.numbers().empty()) return fmt::format("the first, which has taken {:.2g} s", seconds);
    if (usual - seconds >= 1) return fmt::format("in about {:.2g} s", usual - seconds);
    if (seconds < 2 * usual + 1) return "within about a second";
    return fmt::format("which has taken {:.2g} s (median step: {:.2g} s)", seconds, usual);
  }

 private:
  std::int64_t step_ = 1;
  Clock::time_point began_ = Clock::now();
  actors::RecentMedian seconds_{16};  // follows changes quickly
};

}  // namespace ranvier::apps
