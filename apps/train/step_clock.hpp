// Durations of recent steps and remaining time of the current one. Callable from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts step `done` + 1.
  void start(std::int64_t done = 0, Clock::time_point now = Clock::now());
  /// Ends `step` and starts the next one.
  void done(std::int64_t step, Clock::time_point now = Clock::now());

  struct Expectation {
    std::int64_t step = 1;                ///< current step
    double seconds = 0;                   ///< seconds since its start
    std::optional<double> usual_seconds;  ///< median of the last 16 steps; nullopt before the first
  };
  [[nodiscard]] Expectation expectation(Clock::time_point now = Clock::now()) const;

 private:
  static constexpr std::size_t most = 16;

  mutable std::mutex mutex_;
  std::int64_t step_ = 1;
  Clock::time_point began_ = Clock::now();
  std::vector<double> seconds_;  // last steps, oldest first
};

/// "in about 12 s", "which has taken 70 s (median step: 3.2 s)".
[[nodiscard]] std::string to_string(const StepClock::Expectation& expectation);

}  // namespace ranvier::apps
