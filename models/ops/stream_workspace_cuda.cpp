#include "models/ops/stream_workspace_cuda.hpp"

#include "runtime/cuda_native.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ranvier::models::cuda {

std::byte* stream_workspace(runtime::StreamView stream) {
  // Ranks that share a process have a loop each.
  static std::mutex mutex;
  static std::map<std::pair<int, cudaStream_t>, std::byte*> workspaces;
  const cudaStream_t queue = runtime::cuda::native(stream);
  const int ordinal = runtime::cuda::properties(stream.device()).ordinal;
  const std::lock_guard lock(mutex);
  std::byte*& workspace = workspaces[{ordinal, queue}];
  if (workspace == nullptr) {
    void* memory = nullptr;
    runtime::cuda::check(cudaMalloc(&memory, stream_workspace_bytes + stream_sums_floats * sizeof(float)), "cudaMalloc of a stream's workspace");
    workspace = static_cast<std::byte*>(memory);
  }
  return workspace;
}

float* stream_sums(runtime::StreamView stream) {
  return reinterpret_cast<float*>(stream_workspace(stream) + stream_workspace_bytes);
}

}  // namespace ranvier::models::cuda
