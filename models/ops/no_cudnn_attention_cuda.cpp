#include "models/ops/cudnn_attention_cuda.hpp"

#include "runtime/base/error.hpp"

namespace ranvier::models::cuda {

bool built_with_cudnn() { return false; }

std::string cudnn_obstacle() {
  return "this build has no cuDNN: install cuDNN 9 and cudnn-frontend, then configure again";
}

std::size_t cudnn_version() { return 0; }

void bind_cudnn(runtime::StreamView) { fail(ErrorCode::device, "{}", cudnn_obstacle()); }

void unbind_cudnn(runtime::StreamView) noexcept {}

CudnnPlan plan_cudnn_attention(runtime::StreamView, const AttentionShape&, const CudnnRows&, runtime::DType,
                               AttentionPass, std::size_t) {
  return {.attention = nullptr, .obstacle = cudnn_obstacle()};
}

}  // namespace ranvier::models::cuda
