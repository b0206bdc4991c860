#include "models/ops/stream_workspace_cuda.hpp"

#include "models/ops/per_gpu_cuda.hpp"
#include "runtime/device/cuda_native.hpp"

#include <map>

namespace ranvier::models::cuda {

namespace {

using Workspaces = std::map<cudaStream_t, std::byte*>;

}  // namespace

std::byte* stream_workspace(runtime::StreamView stream) {
  const auto workspaces = gpus<Workspaces>().hold(stream);
  std::byte*& workspace = (*workspaces)[runtime::cuda::native(stream)];
  if (workspace == nullptr) {
    void* memory = nullptr;
    runtime::cuda::check(cudaMalloc(&memory, stream_scratch_bytes), "cudaMalloc of a stream's workspace");
    workspace = static_cast<std::byte*>(memory);
  }
  return workspace;
}

void release_stream_workspace(runtime::StreamView stream) {
  const auto workspaces = gpus<Workspaces>().hold(stream);
  const auto here = workspaces->find(runtime::cuda::native(stream));
  if (here == workspaces->end()) return;
  runtime::cuda::check(cudaFree(here->second), "cudaFree of a stream's workspace");
  workspaces->erase(here);
}

float* stream_sums(runtime::StreamView stream) {
  return reinterpret_cast<float*>(stream_workspace(stream) + stream_workspace_bytes);
}

}  // namespace ranvier::models::cuda
