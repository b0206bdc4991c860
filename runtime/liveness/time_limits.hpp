// Time limits of unfinished work, and the time without progress that they limit. One thread at a time.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace ranvier::runtime {

// Numbers of timeouts without progress; the limit of all other work is one timeout.
inline constexpr int file_patience = 3;      ///< a tier's file: a shared disk may stall for a while
inline constexpr int waiting_patience = 4;   ///< ranks that wait for each other; 8 for a rank that waits for those
inline constexpr int output_patience = 10;   ///< a run's files and the terminal
inline constexpr int silence_patience = 10;  ///< a rank that sends no heartbeats at startup
inline constexpr int checkpoint_patience = 30;  ///< a sync shows no progress, and a run can do without a checkpoint

/// Time between two checks for progress.
[[nodiscard]] inline Duration check_period(Duration timeout) {
  return std::clamp<Duration>(timeout / 8, std::chrono::milliseconds(20), std::chrono::seconds(1));
}

/// Time without progress. It is counted in checks, so a process that was stopped and continued has not hung.
class QuietTime {
 public:
  /// Call it every `period`. `done` grows with progress. Returns the time since it changed.
  Duration check(std::uint64_t done, Duration period) {
    return time_ = std::exchange(done_, done) == done ? time_ + period : Duration();
  }
  void reset() noexcept { time_ = {}; }
  [[nodiscard]] Duration time() const noexcept { return time_; }

 private:
  std::optional<std::uint64_t> done_;
  Duration time_{};
};

}  // namespace ranvier::runtime
