// Our own matrix multiplication for processors without AVX-512. There the library lacks half precision, and in fp32 it
// is no faster and less exact. Operands are packed into floats. Every element sums over K in the same order, for any M,
// N and number of threads. Gaps between rows cost nothing.
#pragma once

#include "models/ops/matmul.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {

/// Whether vector_matmul_cpu computes on this processor, for any type.
[[nodiscard]] bool vectors_multiply(const MatmulShape& shape);

/// Same contract as matmul_cpu, on any processor. K is not 0.
void vector_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

}  // namespace ranvier::models
