// GPU kernels of fused_matmul.hpp, which checks the arguments. They return at once, except while measuring. Loop thread
// only.
#pragma once

#include "models/ops/fused_matmul.hpp"

#include <functional>

namespace ranvier::models {

/// The unfused operations, one after the other.
using Apart = std::function<void()>;

void matmul_gelu_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays, void* y,
                      const Apart& apart);
void matmul_add_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                     const void* addend, const Apart& apart);
void matmul_gelu_backward_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                               const void* x, void* y, const Apart& apart);
void matmul_column_sums_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                             const ColumnSums& to, const Apart& apart);

}  // namespace ranvier::models
