// Products of bf16 and fp16 on processors without AVX-512, whose library has none, by a kernel of our own: operands are
// widened as they are packed, and multiplied in vectors of floats. Every element's sum runs over K in the same order,
// whatever M, N and the number of threads, and gaps between rows cost nothing.
#pragma once

#include "models/ops/matmul.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

/// Whether vector_matmul_cpu is the faster one here: for half precision on processors without AVX-512.
[[nodiscard]] bool vectors_multiply(const MatmulShape& shape, runtime::DType dtype);

/// As matmul_cpu, of any type and on any processor. K is not 0.
void vector_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

}  // namespace ranvier::models
