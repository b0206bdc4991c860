// The GPU's kernels behind layer_norm.hpp; arguments are checked there. They return at once. Loop thread only.
#pragma once

#include "models/ops/layer_norm.hpp"

namespace ranvier::models {

void layer_norm_forward_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                             const LayerNormForward& arrays);
void layer_norm_again_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype, void* y,
                           const float* mean, const float* rstd, const void* x, const void* weight,
                           const void* bias);
[[nodiscard]] std::size_t layer_norm_cuda_workspace_bytes(const LayerNormShape& shape);
void layer_norm_backward_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                              const LayerNormBackward& arrays);
void store_gradient_cuda(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                         std::size_t n, bool accumulate);

}  // namespace ranvier::models
