#include "models/ops/fused_matmul.hpp"

#include "models/ops/dispatch.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/kernels/elementwise.hpp"

namespace ranvier::models {
namespace {

void expect_plain_result(const MatmulShape& shape, const MatmulArrays& arrays, const char* operation) {
  expect(arrays.c_dtype == arrays.dtype && !arrays.accumulate && (shape.c_stride == 0 || shape.c_stride == shape.n),
         "{} of {} to {}{}, rows of {} elements {} apart", operation, to_string(arrays.dtype),
         to_string(arrays.c_dtype), arrays.accumulate ? ", accumulating" : "", shape.n, shape.c_stride);
}

}  // namespace

void matmul_gelu(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays, void* y,
                 GeluForm form) {
  expect_plain_result(shape, arrays, "matmul_gelu");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    gelu_forward(stream, arrays.dtype, y, arrays.c, shape.m * shape.n, form);
  };
  if (form == GeluForm::tanh && ran_on_gpu<matmul_gelu_cuda>(stream, shape, arrays, y, apart)) return;
  apart();
}

void matmul_add(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                const void* addend) {
  expect_plain_result(shape, arrays, "matmul_add");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    runtime::add(stream, arrays.c, addend, arrays.dtype, shape.m * shape.n);
  };
  if (ran_on_gpu<matmul_add_cuda>(stream, shape, arrays, addend, apart)) return;
  apart();
}

void matmul_gelu_backward(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                          const void* x, void* y, GeluForm form) {
  expect_plain_result(shape, arrays, "matmul_gelu_backward");
  expect(arrays.bias == nullptr, "matmul_gelu_backward takes no bias");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    gelu_backward(stream, arrays.dtype, arrays.c, x, y, shape.m * shape.n, form);
  };
  if (form == GeluForm::tanh && ran_on_gpu<matmul_gelu_backward_cuda>(stream, shape, arrays, x, y, apart)) return;
  apart();
}

void matmul_column_sums(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const ColumnSums& to) {
  expect(!shape.transpose_b && (shape.b_stride == 0 || shape.b_stride == shape.n) && arrays.bias == nullptr,
         "matmul_column_sums takes b without gaps, as it is, and no bias");
  const auto apart = [&] {
    matmul(stream, shape, arrays);
    column_sums(stream, to.sums, to.dtype, arrays.b, arrays.dtype, shape.k, shape.n, to.accumulate);
  };
  if (ran_on_gpu<matmul_column_sums_cuda>(stream, shape, arrays, to, apart)) return;
  apart();
}

}  // namespace ranvier::models
