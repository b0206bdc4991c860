// The GPU's way behind fused_matmul.hpp; arguments are checked there. They return at once, but for what is being
// measured. Loop thread only.
#pragma once

#include "models/ops/fused_matmul.hpp"

namespace ranvier::models {

void matmul_gelu_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays, void* y);
void matmul_add_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                     const void* addend);
void matmul_gelu_backward_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                               void* x);
void matmul_column_sums_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                             void* sums);

}  // namespace ranvier::models
