// CPU kernels of matmul.hpp. Arguments are checked before. The kernels block until the result is written. In our own
// kernels, every element sums over K in the same order, for any M, N and number of threads, and gaps between rows cost
// nothing.
#pragma once

#include "models/ops/matmul.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {

/// Chooses one of the kernels below.
void matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);
void column_sums_cpu(runtime::ComputePool& pool, void* sums, runtime::DType sums_dtype, const void* dy,
                     runtime::DType dtype, std::size_t m, std::size_t n, bool accumulate);

/// With the library (library_matmul.hpp).
void matmul_cpu_by_library(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);
/// For types that the processor cannot multiply: converts the operands to f32.
void matmul_cpu_widened(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);

/// Our own kernel for bf16 with AMX (amx.hpp).
void amx_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);
/// Whether amx_matmul_cpu supports the operands and is faster: bf16, AMX available, a not transposed. Weight gradients,
/// which sum over rows, use the library.
[[nodiscard]] bool amx_multiplies(const MatmulShape& shape, runtime::DType dtype);

/// Our own kernel for processors without AVX-512. There the library lacks half precision, and in fp32 it is no faster
/// and less exact. Operands are packed into floats. Computes on any processor; K is not 0.
void vector_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays);
/// Whether vector_matmul_cpu is better than the library on this processor, for any type.
[[nodiscard]] bool vectors_multiply(const MatmulShape& shape);

}  // namespace ranvier::models
