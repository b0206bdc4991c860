// The CPU's kernels behind layer_norm.hpp; arguments are checked there. They block until the result is written.
#pragma once

#include "models/ops/layer_norm.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void layer_norm_forward_cpu(runtime::ComputePool& pool, const LayerNormShape& shape, runtime::DType dtype,
                            const LayerNormForward& arrays);
void layer_norm_again_cpu(runtime::ComputePool& pool, const LayerNormShape& shape, runtime::DType dtype, void* y,
                          const float* mean, const float* rstd, const void* x, const void* weight,
                          const void* bias);
[[nodiscard]] std::size_t layer_norm_cpu_workspace_bytes(const LayerNormShape& shape);
void layer_norm_backward_cpu(runtime::ComputePool& pool, const LayerNormShape& shape, runtime::DType dtype,
                             const LayerNormBackward& arrays);
void store_gradient_cpu(void* gradient, runtime::DType dtype, const float* sums, std::size_t n, bool accumulate);

}  // namespace ranvier::models
