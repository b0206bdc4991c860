#include "models/ops/stream_workspace_cuda.hpp"

#include "runtime/device/cuda_native.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ranvier::models::cuda {

namespace {

struct Workspaces {
  std::mutex mutex;  // ranks in one process have a loop thread each
  std::map<std::pair<int, cudaStream_t>, std::byte*> of_streams;
};

Workspaces& all() {
  static Workspaces workspaces;
  return workspaces;
}

std::pair<int, cudaStream_t> key_of(runtime::StreamView stream) {
  return {runtime::cuda::properties(stream.device()).ordinal, runtime::cuda::native(stream)};
}

}  // namespace

std::byte* stream_workspace(runtime::StreamView stream) {
  const auto key = key_of(stream);
  const std::lock_guard lock(all().mutex);
  std::byte*& workspace = all().of_streams[key];
  if (workspace == nullptr) {
    void* memory = nullptr;
    runtime::cuda::check(cudaMalloc(&memory, stream_scratch_bytes), "cudaMalloc of a stream's workspace");
    workspace = static_cast<std::byte*>(memory);
  }
  return workspace;
}

void release_stream_workspace(runtime::StreamView stream) {
  const auto key = key_of(stream);
  const std::lock_guard lock(all().mutex);
  const auto here = all().of_streams.find(key);
  if (here == all().of_streams.end()) return;
  runtime::cuda::check(cudaFree(here->second), "cudaFree of a stream's workspace");
  all().of_streams.erase(here);
}

float* stream_sums(runtime::StreamView stream) {
  return reinterpret_cast<float*>(stream_workspace(stream) + stream_workspace_bytes);
}

}  // namespace ranvier::models::cuda
