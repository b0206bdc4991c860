// Products of bf16 in the processor's matrix registers (amx.hpp), by kernels of our own: every element's sum runs over
// K in the same order, whatever M, N and the number of threads, and gaps between rows cost nothing.
#pragma once

#include "models/ops/matmul.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

/// Whether amx_matmul_cpu may be called: operands of bf16, registers that the operating system allows, and rows of a
/// that lie as rows, for which it is the faster one. Weight gradients, which sum over rows, stay with the library.
[[nodiscard]] bool amx_multiplies(const MatmulShape& shape, runtime::DType dtype);

/// As matmul_cpu.
void amx_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

}  // namespace ranvier::models
