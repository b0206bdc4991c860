// Matrix multiplications fused with the next operation of a transformer. A GPU's library fuses them (cuBLASLt's
// epilogues) if that was measured to be faster (product_choice.hpp). Otherwise the result is bit-identical to matmul()
// followed by add(), gelu_forward(), gelu_backward() or column_sums(). Fused GELU is the library's tanh form, without
// rounding in between; the erf form is never fused. Letters as in matmul.hpp.
#pragma once

#include "models/ops/activation.hpp"
#include "models/ops/matmul.hpp"

namespace ranvier::models {

/// c[M, N] = a·b + bias and y[M, N] = gelu(c), both of arrays.dtype, without gaps between rows.
void matmul_gelu(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays, void* y,
                 GeluForm form = GeluForm::tanh);

/// c[M, N] = a·b + bias + addend[M, N], all of arrays.dtype, without gaps between rows. c is not the addend.
void matmul_add(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                const void* addend);

/// c[M, N] = (a·b) · gelu'(x[M, N]), and y[M, N] = gelu(x) unless y is null. All of arrays.dtype, without gaps between
/// rows and without bias. y may be x.
void matmul_gelu_backward(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                          const void* x, void* y, GeluForm form = GeluForm::tanh);

/// Destination of column sums.
struct ColumnSums {
  void* sums = nullptr;  ///< [N]
  runtime::DType dtype = runtime::DType::f32;
  bool accumulate = false;
};

/// c[M, N] (+)= a·b and sums[N] (+)= Σ_k b[K, N]: the gradients of a weight and of its bias. b is not transposed and
/// has no gaps between rows.
void matmul_column_sums(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const ColumnSums& to);

}  // namespace ranvier::models
