// Matrix products and what a transformer does beside them. A GPU's library can do both at once (cuBLASLt's
// epilogues) and does where that was measured to be faster (product_choice.hpp); everywhere else they are matmul(),
// add(), gelu_forward(), gelu_backward() and column_sums() one after the other, to the bit. Done at once, GELU is
// the library's, which is the tanh form, and sums are not rounded in between; the erf form is always apart. Letters as
// in matmul.hpp.
#pragma once

#include "models/ops/gelu.hpp"
#include "models/ops/matmul.hpp"

namespace ranvier::models {

/// c[M, N] = a·b + bias and y[M, N] = gelu(c), both of arrays.dtype; rows have no gaps.
void matmul_gelu(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays, void* y,
                 GeluForm form = GeluForm::tanh);

/// c[M, N] = a·b + bias + addend[M, N], all of arrays.dtype; rows have no gaps, and c is not the addend.
void matmul_add(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                const void* addend);

/// c[M, N] = (a·b) · gelu'(x[M, N]), and y[M, N] = gelu(x) unless y is null, all of arrays.dtype; y may be x, rows have
/// no gaps, and there is no bias.
void matmul_gelu_backward(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                          const void* x, void* y, GeluForm form = GeluForm::tanh);

/// Where sums over rows go.
struct ColumnSums {
  void* sums = nullptr;  ///< [N]
  runtime::DType dtype = runtime::DType::f32;
  bool accumulate = false;
};

/// c[M, N] (+)= a·b and sums[N] (+)= Σ_k b[K, N]: the gradients of a weight and of its bias. Rows of b have no gaps
/// and are not transposed.
void matmul_column_sums(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const ColumnSums& to);

}  // namespace ranvier::models
