// The CPU's kernels behind gelu.hpp; arguments are checked there. They block until the result is written.
#pragma once

#include "models/ops/gelu.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void gelu_forward_cpu(runtime::ComputePool& pool, runtime::DType dtype, void* y, const void* x, std::size_t n);
void gelu_backward_cpu(runtime::ComputePool& pool, runtime::DType dtype, void* d, void* x, std::size_t n);

}  // namespace ranvier::models
