// How long the steps of a run take, for somebody who waits for one. Any thread.
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

  /// The step after those that are done begins.
  void start(std::int64_t done = 0, Clock::time_point now = Clock::now());
  /// That step is done, and the next one begins.
  void done(std::int64_t step, Clock::time_point now = Clock::now());

  struct Expectation {
    std::int64_t step = 1;                ///< that is under way
    double seconds = 0;                   ///< since it began
    std::optional<double> usual_seconds;  ///< the median of the last steps; none: none was done
  };
  [[nodiscard]] Expectation expectation(Clock::time_point now = Clock::now()) const;

 private:
  static constexpr std::size_t most = 16;

  mutable std::mutex mutex_;
  std::int64_t step_ = 1;
  Clock::time_point began_ = Clock::now();
  std::vector<double> seconds_;  // of the last steps, oldest first
};

/// "in about 12 s", "which has taken 70 s where others took 3.2 s".
[[nodiscard]] std::string to_string(const StepClock::Expectation& expectation);

}  // namespace ranvier::apps
