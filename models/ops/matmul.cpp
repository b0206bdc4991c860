#include "models/ops/matmul.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/matmul_cpu.hpp"
#include "runtime/base/error.hpp"

namespace ranvier::models {
namespace {

using runtime::DType;

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

void matmul(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  expect(is_float(arrays.dtype) && (arrays.c_dtype == DType::f32 || arrays.c_dtype == arrays.dtype),
         "matmul of {} to {}", to_string(arrays.dtype), to_string(arrays.c_dtype));
  expect(arrays.bias == nullptr || !arrays.accumulate, "matmul that accumulates takes no bias");
  expect(shape.a_row() >= shape.a_columns() && shape.b_row() >= shape.b_columns() && shape.c_row() >= shape.n,
         "matmul of M {}, N {}, K {} with rows of {}, {} and {} elements", shape.m, shape.n, shape.k,
         shape.a_stride, shape.b_stride, shape.c_stride);
  if (shape.m == 0 || shape.n == 0) return;
  runtime::WorkCost cost =
      product_cost({shape.m, shape.n, shape.k}, arrays.dtype, arrays.c_dtype, arrays.accumulate);
  if (arrays.bias != nullptr) cost.bytes += static_cast<double>(bytes_of(shape.n, arrays.dtype));
  on_device<matmul_cpu, matmul_cuda>(stream, cost, shape, arrays);
}

void column_sums(runtime::StreamView stream, void* sums, DType sums_dtype, const void* dy, DType dtype,
                 std::size_t m, std::size_t n, bool accumulate) {
  expect(is_float(dtype) && is_float(sums_dtype), "column_sums of {} to {}", to_string(dtype),
         to_string(sums_dtype));
  if (n == 0) return;
  const std::size_t bytes = bytes_of(m * n, dtype) + bytes_of(n, sums_dtype) * (accumulate ? 2 : 1);
  on_device<column_sums_cpu, column_sums_cuda>(stream, runtime::elementwise_cost(bytes, dtype), sums, sums_dtype,
                                               dy, dtype, m, n, accumulate);
}

}  // namespace ranvier::models
