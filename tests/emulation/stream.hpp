// Streams of the emulated GPU: work is done when it is queued, unless the stream is being captured; then it waits in
// the graph. Work owns its arguments and does not refer to the caller's variables. Any thread, one at a time per
// stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace ranvier::emulation {

struct CopyDone {
  const void* to;
  std::size_t bytes;
};

/// While an object exists, lists the copies of cudaMemcpyAsync, and a graph's copies at each launch. One at a time.
class WatchedCopies {
 public:
  WatchedCopies();
  ~WatchedCopies();
  WatchedCopies(const WatchedCopies&) = delete;
  WatchedCopies& operator=(const WatchedCopies&) = delete;

  std::vector<CopyDone> done;
};

/// Queues work; during a capture, a call that no captured stream accepts ends the program with a line on stderr.
void queue(cudaStream_t stream, std::function<void()> work);

/// Simulates an illegal memory access of a kernel that has been reported: every later call fails.
void break_gpu();

/// Whether the stream was created and not destroyed. Null, the default stream, always is.
[[nodiscard]] bool is_alive(cudaStream_t stream);

}  // namespace ranvier::emulation
