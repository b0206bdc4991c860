// Work of a stream that comes again and again, kept as CUDA graphs: a graph of many kernels costs the host about what
// one kernel does (Stream::repeat). Only _cuda.cpp files include this. Loop thread only.
//
// The first call of a key queues its work as usual, since libraries load code and choose algorithms then, which a
// capture does not allow. The second one is captured, and from then on the graph is launched. A key that never comes
// again, because something in it counts up, costs its place in a table for a while.
//
// Where the driver or a library refuses a capture, work is queued as usual from then on, and Repeats says why.
#pragma once

#include "runtime/stream.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ranvier::runtime::cuda {

class GraphCache {
 public:
  /// Graphs of a dozen nodes each take tens of megabytes then. Later keys are not kept.
  static constexpr std::size_t most_graphs = 4096;
  /// Keys that were seen once; when there are so many, all of those are forgotten.
  static constexpr std::size_t most_seen = 4096;

  explicit GraphCache(cudaStream_t stream) : stream_(stream) {}
  /// After the stream's work is done.
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// As Stream::repeat(). Throws what `queue` throws, and ErrorCode::device for a graph that cannot be launched.
  void run(std::span<const std::uint64_t> key, const std::function<void()>& queue);

  [[nodiscard]] const Repeats& repeats() const noexcept { return repeats_; }

 private:
  using Key = std::vector<std::uint64_t>;

  /// What `queue` would have queued; null where it cannot be had, and then nothing was queued.
  [[nodiscard]] cudaGraphExec_t capture(const std::function<void()>& queue);
  void refuse(std::string why);

  const cudaStream_t stream_;
  std::map<Key, cudaGraphExec_t> graphs_;  // null: seen once
  std::size_t seen_ = 0;
  Repeats repeats_;
};

}  // namespace ranvier::runtime::cuda
