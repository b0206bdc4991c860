#include "models/ops/fused_matmul.hpp"

#include "models/ops/library_matmul_cuda.hpp"
#include "models/ops/library_pieces.hpp"
#include "models/ops/norm.hpp"
#include "models/ops/stream_workspace_cuda.hpp"

namespace ranvier::models {
namespace {

using Kind = Epilogue::Kind;

/// Runs the multiplication with its epilogue and then `rest`, or `apart`.
template <typename Rest>
void at_once_or(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                const Epilogue& epilogue, const Rest& rest, const Apart& apart) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0 || !library_takes_whole(shape)) return apart();
  if (library_weighs_cuda(stream, shape, arrays, epilogue))
    return library_weigh_cuda(stream, shape, arrays, epilogue, rest, apart);
  library_matmul_cuda(stream, shape, arrays, epilogue) ? rest() : apart();
}

}  // namespace

void matmul_gelu_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays, void* y,
                      const Apart& apart) {
  MatmulArrays to_gelu = arrays;
  to_gelu.c = y;
  at_once_or(stream, shape, to_gelu, {Kind::gelu, arrays.c}, [] {}, apart);
}

void matmul_add_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                     const void* addend, const Apart& apart) {
  at_once_or(stream, shape, arrays, {Kind::sum, const_cast<void*>(addend)}, [] {}, apart);  // only read
}

void matmul_gelu_backward_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                               const void* x, void* y, const Apart& apart) {
  at_once_or(
      stream, shape, arrays, {Kind::gelu_backward, const_cast<void*>(x)},  // only read
      [&] {
        if (y != nullptr) gelu_forward(stream, arrays.dtype, y, x, shape.m * shape.n);
      },
      apart);
}

void matmul_column_sums_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                             const ColumnSums& to, const Apart& apart) {
  // The library stores sums in the result's type and cannot add to them. So new sums are stored separately first.
  if (arrays.c_dtype != runtime::DType::f32 || to.dtype != runtime::DType::f32 ||
      shape.n > cuda::stream_sums_floats)
    return apart();
  float* const fresh = to.accumulate ? cuda::stream_sums(stream) : static_cast<float*>(to.sums);
  at_once_or(
      stream, shape, arrays, {Kind::column_sums, fresh},
      [&] {
        if (to.accumulate) store_gradient(stream, to.sums, to.dtype, fresh, shape.n, true);
      },
      apart);
}

}  // namespace ranvier::models
