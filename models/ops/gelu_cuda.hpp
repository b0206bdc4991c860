// The GPU's kernels behind gelu.hpp; arguments are checked there. They return at once. Loop thread only.
#pragma once

#include "models/ops/gelu.hpp"

namespace ranvier::models {

void gelu_forward_cuda(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n);
void gelu_backward_cuda(runtime::StreamView stream, runtime::DType dtype, void* d, void* x, std::size_t n);

}  // namespace ranvier::models
