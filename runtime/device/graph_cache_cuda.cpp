#include "runtime/device/graph_cache_cuda.hpp"

#include "runtime/device/cuda_native.hpp"

#include <fmt/core.h>

#include <exception>
#include <utility>

namespace ranvier::runtime::cuda {
namespace {

std::string said(const char* call, cudaError_t result) {
  return fmt::format("{}: {}", call, cudaGetErrorString(result));
}

}  // namespace

GraphCache::~GraphCache() {
  for (const auto& [key, graph] : graphs_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
}

void GraphCache::run(std::span<const std::uint64_t> key, const std::function<void()>& queue) {
  const auto queue_it = [&] {
    ++graph_stats_.queued;
    queue();
  };
  if (!graph_stats_.refused.empty()) return queue_it();
  const auto [here, is_new] = graphs_.try_emplace(Key(key.begin(), key.end()), nullptr);
  if (is_new) {
    if (++seen_ > max_seen) {
      std::erase_if(graphs_, [](const auto& one) { return one.second == nullptr; });
      seen_ = 0;
    }
    return queue_it();
  }
  if (here->second == nullptr) {
    if (graph_stats_.kept == max_graphs) return queue_it();
    here->second = capture(queue);
    if (here->second == nullptr) return queue_it();
    ++graph_stats_.kept;
    --seen_;
  }
  check(cudaGraphLaunch(here->second, stream_), "cudaGraphLaunch");
  ++graph_stats_.replayed;
}

cudaGraphExec_t GraphCache::capture(const std::function<void()>& queue) {
  // Calls of other threads, which wait for events, do not affect this capture.
  cudaError_t result = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (result != cudaSuccess) return refuse(said("cudaStreamBeginCapture", result)), nullptr;
  cudaGraph_t graph = nullptr;
  try {
    queue();
  } catch (const std::exception& error) {
    // The work cannot be captured. If it failed for another reason, it fails again without a capture.
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    refuse(error.what());
    return nullptr;
  }
  result = cudaStreamEndCapture(stream_, &graph);
  if (result != cudaSuccess) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    return refuse(said("cudaStreamEndCapture", result)), nullptr;
  }
  cudaGraphExec_t runnable = nullptr;
  result = cudaGraphInstantiate(&runnable, graph, 0);
  cudaGraphDestroy(graph);
  if (result != cudaSuccess) return refuse(said("cudaGraphInstantiate", result)), nullptr;
  return runnable;
}

void GraphCache::refuse(std::string why) {
  cudaGetLastError();  // resets CUDA's last error: it is handled here
  graph_stats_.refused = std::move(why);
}

}  // namespace ranvier::runtime::cuda
