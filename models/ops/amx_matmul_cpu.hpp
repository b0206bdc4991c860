// Our own matrix multiplication in bf16 with AMX (amx.hpp). Every element sums over K in the same order, for any M, N
// and number of threads. Gaps between rows cost nothing.
#pragma once

#include "models/ops/matmul.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {

/// Whether amx_matmul_cpu supports the operands and is faster: bf16, AMX available, a not transposed. Weight gradients,
/// which sum over rows, use the library.
[[nodiscard]] bool amx_multiplies(const MatmulShape& shape, runtime::DType dtype);

/// Same contract as matmul_cpu.
void amx_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

}  // namespace ranvier::models
