// Reads and writes of files that go on beside each other: submitted by one thread, which then waits for
// completions. Two kinds, by file: uring_queue.cpp (io_uring) and thread_queue.cpp (pread and pwrite on threads,
// where io_uring is refused).
//
// A completion says what the system said, and no more: short counts and errors are for the caller to handle.
// Owner thread only, but for wake().
#pragma once

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
  std::uint64_t id = 0;  ///< comes back with the completion
};

struct IoCompletion {
  std::uint64_t id = 0;
  std::int64_t result = 0;  ///< bytes transferred, or a negative errno
};

class IoQueue {
 public:
  /// Nothing may be outstanding.
  virtual ~IoQueue() = default;

  /// Starts the requests; at most `depth` may be outstanding, which was given when the queue was made.
  virtual void submit(std::span<const IoRequest> requests) = 0;

  /// Blocks until something completed or wake() was called since the last wait, and appends what completed.
  virtual void wait(std::vector<IoCompletion>& completed) = 0;

  /// Ends a wait, the present or the next one. Any thread.
  virtual void wake() = 0;
};

/// A queue on io_uring, or a null queue and the errno with which the system refused one (EPERM in many containers,
/// ENOSYS in old kernels).
struct UringOutcome {
  std::unique_ptr<IoQueue> queue;
  int error = 0;
};
[[nodiscard]] UringOutcome make_uring_queue(int depth);

/// A queue on threads, of which there are `depth`, but no more than sixteen.
[[nodiscard]] std::unique_ptr<IoQueue> make_thread_queue(int depth);

}  // namespace ranvier::offload
