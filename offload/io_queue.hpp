// Queue of parallel file reads and writes, submitted by one thread, which then waits for completions. Two kinds:
// uring_queue.cpp (io_uring) and thread_queue.cpp (pread and pwrite on threads, if io_uring is refused).
//
// Completions contain the system's raw result; callers handle short counts and errors. Owner thread only, except
// wake().
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::offload {

enum class IoKind : std::uint8_t { read, write };

struct IoRequest {
  IoKind kind = IoKind::read;
  int file = -1;  ///< descriptor
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t id = 0;  ///< returned with the completion
};

struct IoCompletion {
  std::uint64_t id = 0;
  std::int64_t result = 0;  ///< bytes transferred, or a negative errno
};

class IoQueue {
 public:
  /// No request may be outstanding.
  virtual ~IoQueue() = default;

  /// Starts the requests; at most `depth` (from construction) may be outstanding.
  virtual void submit(std::span<const IoRequest> requests) = 0;

  /// Blocks until a request completes or wake() was called since the last wait; appends completions.
  virtual void wait(std::vector<IoCompletion>& completed) = 0;

  /// Ends the current or next wait. Any thread.
  virtual void wake() = 0;
};

/// A queue, and the errno with which io_uring was refused (EPERM in many containers, ENOSYS in old kernels).
struct UringOutcome {
  std::unique_ptr<IoQueue> queue;
  int error = 0;
};
/// Creates a queue on io_uring, or none.
[[nodiscard]] UringOutcome make_uring_queue(int depth);

/// Creates a queue on min(`depth`, 16) threads.
[[nodiscard]] std::unique_ptr<IoQueue> make_thread_queue(int depth);

/// Attempts without a transferred byte (EINTR, EAGAIN, or less than a block) before a request fails: over a second if
/// each was delayed.
inline constexpr int max_attempts = 60;

/// Delay before requests that returned EAGAIN are submitted again.
[[nodiscard]] inline std::chrono::microseconds pause_before(int attempt) {
  return std::chrono::microseconds(std::min(20'000, 100 << std::min(attempt, 8)));
}

}  // namespace ranvier::offload
