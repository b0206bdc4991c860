// The CPU's kernels behind matmul.hpp; arguments are checked there. They block until the result is written.
#pragma once

#include "models/ops/matmul.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

/// The same by way of f32 copies of the operands: for types that the processor cannot multiply.
void matmul_cpu_widened(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

void column_sums_cpu(runtime::ComputePool& pool, void* sums, runtime::DType sums_dtype, const void* dy,
                     runtime::DType dtype, std::size_t m, std::size_t n, bool accumulate);

}  // namespace ranvier::models
