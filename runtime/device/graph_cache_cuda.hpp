// Repeated work of a stream, recorded as CUDA graphs (Stream::repeat). Launching a graph of many kernels costs the
// host about as much as one kernel. Only _cuda.cpp files include this. Loop thread only.
//
// The first call of a key queues its work directly, since libraries then load code and choose algorithms, which a
// capture forbids. The second call is captured; it and all later calls launch the graph. If the driver or a library
// refuses a capture, all later work is queued directly, and GraphStats::refused has the reason.
#pragma once

#include "runtime/device/stream.hpp"

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
  /// Maximum number of graphs; later keys are queued directly. Graphs with a dozen nodes each then take tens of
  /// megabytes.
  static constexpr std::size_t max_graphs = 4096;
  /// Maximum number of keys seen once; beyond it all of them are forgotten.
  static constexpr std::size_t max_seen = 4096;

  explicit GraphCache(cudaStream_t stream) : stream_(stream) {}
  /// Destroy it after the stream's work is done.
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// Implements Stream::repeat(). Rethrows exceptions of `queue`; throws ErrorCode::device if a graph cannot be
  /// launched.
  void run(std::span<const std::uint64_t> key, const std::function<void()>& queue);

  [[nodiscard]] const GraphStats& graph_stats() const noexcept { return graph_stats_; }

 private:
  using Key = std::vector<std::uint64_t>;

  /// Graph of the work that `queue` queues. Null if it cannot be captured; then nothing was queued.
  [[nodiscard]] cudaGraphExec_t capture(const std::function<void()>& queue);
  void refuse(std::string why);

  const cudaStream_t stream_;
  std::map<Key, cudaGraphExec_t> graphs_;  // null: key seen once
  std::size_t seen_ = 0;
  GraphStats graph_stats_;
};

}  // namespace ranvier::runtime::cuda
