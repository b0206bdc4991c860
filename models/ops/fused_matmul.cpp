#include "models/ops/fused_matmul.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/library_matmul_cuda.hpp"
#include "models/ops/norm.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

namespace ranvier::models {
namespace {

using Kind = Epilogue::Kind;

void expect_plain_result(const MatmulShape& shape, const MatmulArrays& arrays, const char* operation) {
  expect(arrays.c_dtype == arrays.dtype && !arrays.accumulate && (shape.c_stride == 0 || shape.c_stride == shape.n),
         "{} of {} to {}{}, rows of {} elements {} apart", operation, to_string(arrays.dtype),
         to_string(arrays.c_dtype), arrays.accumulate ? ", accumulating" : "", shape.n, shape.c_stride);
}

/// library_fused_cuda() on a GPU, otherwise `apart`.
template <typename Rest, typename Apart>
void fuse(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
          const Epilogue& epilogue, const Rest& rest, const Apart& apart) {
  if (!ran_on_gpu<library_fused_cuda>(stream, shape, arrays, epilogue, rest, apart)) apart();
}

}  // namespace

void matmul_gelu(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays, void* y,
                 GeluForm form) {
  expect_plain_result(shape, arrays, "matmul_gelu");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    gelu_forward(stream, arrays.dtype, y, arrays.c, shape.m * shape.n, form);
  };
  if (form != GeluForm::tanh) return apart();
  MatmulArrays to_gelu = arrays;
  to_gelu.c = y;
  fuse(stream, shape, to_gelu, {Kind::gelu, arrays.c}, [] {}, apart);
}

void matmul_add(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                const void* addend) {
  expect_plain_result(shape, arrays, "matmul_add");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    runtime::add(stream, arrays.c, addend, arrays.dtype, shape.m * shape.n);
  };
  fuse(stream, shape, arrays, {Kind::sum, const_cast<void*>(addend)}, [] {}, apart);  // only read
}

void matmul_gelu_backward(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                          const void* x, void* y, GeluForm form) {
  expect_plain_result(shape, arrays, "matmul_gelu_backward");
  expect(arrays.bias == nullptr, "matmul_gelu_backward takes no bias");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    gelu_backward(stream, arrays.dtype, arrays.c, x, y, shape.m * shape.n, form);
  };
  if (form != GeluForm::tanh) return apart();
  const auto rest = [&] {
    if (y != nullptr) gelu_forward(stream, arrays.dtype, y, x, shape.m * shape.n);
  };
  fuse(stream, shape, arrays, {Kind::gelu_backward, const_cast<void*>(x)}, rest, apart);  // only read
}

void matmul_column_sums(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const ColumnSums& to) {
  expect(!shape.transpose_b && (shape.b_stride == 0 || shape.b_stride == shape.n) && arrays.bias == nullptr,
         "matmul_column_sums takes b without gaps, as it is, and no bias");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    column_sums(stream, to.sums, to.dtype, arrays.b, arrays.dtype, shape.k, shape.n, to.accumulate);
  };
  if (arrays.c_dtype != runtime::DType::f32 || to.dtype != runtime::DType::f32 ||
      shape.n > cuda::stream_sums_floats)
    return apart();
  // The library stores sums in the result's type and cannot add to them. So new sums are stored separately first.
  auto* fresh = static_cast<float*>(to.sums);
  if constexpr (runtime::with_cuda) {
    if (to.accumulate && on_gpu(stream)) fresh = cuda::stream_sums(stream);
  }
  const auto rest = [&] {
    if (to.accumulate) store_gradient(stream, to.sums, to.dtype, fresh, shape.n, true);
  };
  fuse(stream, shape, arrays, {Kind::column_sums, fresh}, rest, apart);
}

}  // namespace ranvier::models
