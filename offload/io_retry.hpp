// Retry limits for requests that return EINTR or EAGAIN, or transfer less than a block.
#pragma once

#include <algorithm>
#include <chrono>

namespace ranvier::offload {

/// Attempts without a transferred byte before a request fails: over a second if each was delayed.
inline constexpr int max_attempts = 60;

/// Delay before requests that returned EAGAIN are submitted again.
[[nodiscard]] inline std::chrono::microseconds pause_before(int attempt) {
  return std::chrono::microseconds(std::min(20'000, 100 << std::min(attempt, 8)));
}

}  // namespace ranvier::offload
