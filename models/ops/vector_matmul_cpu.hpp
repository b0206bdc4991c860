// Products by a kernel of our own, for processors without AVX-512: there the library has none of half precision, and in
// fp32 it is no faster and less exact. Operands are packed into floats, and multiplied in vectors of those. Every
// element's sum runs over K in the same order, whatever M, N and the number of threads; gaps between rows cost nothing.
#pragma once

#include "models/ops/matmul.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

/// Whether products go to vector_matmul_cpu on this processor, of whatever type they are.
[[nodiscard]] bool vectors_multiply(const MatmulShape& shape);

/// As matmul_cpu, on any processor. K is not 0.
void vector_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

}  // namespace ranvier::models
