// Clock of one rank: real time, or a simulation's virtual time. Trace, reporter, watchdog and measurements read their
// loop's clock, so that all of them work in virtual time.
#pragma once

#include <chrono>

namespace ranvier::runtime {

using Duration = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  /// Time since the clock was made; it never decreases. Callable from any thread.
  [[nodiscard]] virtual Duration now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Duration now() const override { return std::chrono::steady_clock::now() - start_; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

[[nodiscard]] inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace ranvier::runtime
