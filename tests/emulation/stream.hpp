// Streams of the emulated GPU: work is done when it is queued, unless the stream is being captured; then it waits
// in the graph. Work owns what it needs: arguments, not the caller's variables. Any thread, one at a time for each
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

/// While one lives, lists what cudaMemcpyAsync copies; a copy of a graph whenever the graph is launched. One at a time.
class WatchedCopies {
 public:
  WatchedCopies();
  ~WatchedCopies();
  WatchedCopies(const WatchedCopies&) = delete;
  WatchedCopies& operator=(const WatchedCopies&) = delete;

  std::vector<CopyDone> done;
};

/// What no stream may be asked for during a capture ends the program with a line on stderr.
void queue(cudaStream_t stream, std::function<void()> work);

/// As after a kernel that read where nothing is, and of which everybody knows: every call fails from now on.
void break_gpu();

/// Whether it was made and is not destroyed. Null is: the default stream.
[[nodiscard]] bool is_alive(cudaStream_t stream);

}  // namespace ranvier::emulation
