// The GPU's kernels behind matmul.hpp; arguments are checked there. They return at once. Loop thread only.
#pragma once

#include "models/ops/matmul.hpp"

namespace ranvier::models {

void matmul_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays);

/// The same by a kernel of our own, which takes everything and is slow: for what the library refuses.
void matmul_cuda_plain(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays);

void column_sums_cuda(runtime::StreamView stream, void* sums, runtime::DType sums_dtype, const void* dy,
                      runtime::DType dtype, std::size_t m, std::size_t n, bool accumulate);

}  // namespace ranvier::models
