// How long the system is asked again that answers a request with EINTR or EAGAIN, or moves less than a block of it.
#pragma once

#include <algorithm>
#include <chrono>

namespace ranvier::offload {

/// A request that was answered this often in a row without a byte moved has failed: after a good second, where it
/// was put off each time.
inline constexpr int max_attempts = 60;

/// How long to wait before requests are submitted once more that the system put off (EAGAIN).
[[nodiscard]] inline std::chrono::microseconds pause_before(int attempt) {
  return std::chrono::microseconds(std::min(20'000, 100 << std::min(attempt, 8)));
}

}  // namespace ranvier::offload
