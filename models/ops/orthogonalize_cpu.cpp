#include "models/ops/dispatch.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/memory_layout.hpp"
#include "models/ops/orthogonalize.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ranvier::models {
namespace {

using runtime::DType;

constexpr int newton_schulz_steps = 5;

/// Offsets of the workspace's arrays.
struct OrthogonalizeArrays : MemoryLayout {
  OrthogonalizeArrays(std::size_t rows, std::size_t columns, DType dtype)
      : row_blocks(runtime::ceil_divide(columns, runtime::squares_block_elements)) {
    const std::size_t size = std::min(rows, columns);
    x = add(rows * columns, size_of(dtype));
    a = add(size * size, size_of(dtype));
    squared = add(size * size, size_of(dtype));
    sums = add(rows * row_blocks, sizeof(float));
    total = add(1, sizeof(double));
  }

  std::size_t row_blocks;  ///< sums of squares per row
  std::size_t x;           ///< [R, C] every other iterate; the others are in the matrix, where its rows start
  std::size_t a;           ///< [S, S] A
  std::size_t squared;     ///< [S, S] A², then the polynomial of A
  std::size_t sums;        ///< [R, row_blocks] float
  std::size_t total;       ///< double: sum of squares
};

}  // namespace

float muon_scale(std::size_t rows, std::size_t columns) {
  return 0.2f * std::sqrt(static_cast<float>(std::max(rows, columns)));
}

std::size_t orthogonalize_workspace(std::size_t rows, std::size_t columns, DType dtype) {
  return OrthogonalizeArrays(rows, columns, dtype).bytes();
}

void orthogonalize(runtime::StreamView stream, float* matrix, std::size_t rows, std::size_t columns,
                   std::size_t stride, float scale, DType dtype, std::byte* workspace) {
  expect(rows > 0 && columns > 0 && stride >= columns, "orthogonalize of {} × {} elements in rows of {}", rows,
         columns, stride);
  expect(dtype == DType::f32 || dtype == DType::bf16, "orthogonalize in {}", to_string(dtype));
  const OrthogonalizeArrays at(rows, columns, dtype);
  std::byte *const a = workspace + at.a, *const squared = workspace + at.squared;
  auto* const sums = reinterpret_cast<float*>(workspace + at.sums);
  auto* const total = reinterpret_cast<double*>(workspace + at.total);
  runtime::sums_of_squares(stream, sums, at.row_blocks, matrix, {columns, stride}, DType::f32, rows * columns);
  runtime::sum(stream, total, sums, rows * at.row_blocks);
  divide_by_norm(stream, workspace + at.x, dtype, matrix, rows, columns, stride, total);

  const bool wide = rows <= columns;
  const std::size_t size = std::min(rows, columns);
  void *from = workspace + at.x, *to = matrix;
  std::size_t from_stride = columns, to_stride = stride * sizeof(float) / size_of(dtype);
  static_assert(newton_schulz_steps % 2 == 1, "the last iterate is the matrix");
  static_assert(orthogonalize_launches == 3 + 4 * newton_schulz_steps);
  for (int step = 0; step < newton_schulz_steps; ++step) {
    const bool last = step + 1 == newton_schulz_steps;
    matmul(stream,
           {.m = size,
            .n = size,
            .k = std::max(rows, columns),
            .transpose_a = !wide,
            .transpose_b = wide,
            .a_stride = from_stride,
            .b_stride = from_stride},
           {.c = a, .c_dtype = dtype, .a = from, .b = from, .dtype = dtype});
    matmul(stream, {.m = size, .n = size, .k = size},
           {.c = squared, .c_dtype = dtype, .a = a, .b = a, .dtype = dtype});
    newton_schulz_factor(stream, squared, a, dtype, size, last ? scale : 1.0f);
    matmul(stream,
           {.m = rows,
            .n = columns,
            .k = size,
            .a_stride = wide ? 0 : from_stride,
            .b_stride = wide ? from_stride : 0,
            .c_stride = last ? stride : to_stride},
           {.c = to,
            .c_dtype = last ? DType::f32 : dtype,
            .a = wide ? squared : from,
            .b = wide ? from : squared,
            .dtype = dtype});
    std::swap(from, to);
    std::swap(from_stride, to_stride);
  }
}

void divide_by_norm(runtime::StreamView stream, void* x, DType dtype, const float* matrix, std::size_t rows,
                    std::size_t columns, std::size_t stride, const double* squares) {
  if (ran_on_gpu<divide_by_norm_cuda>(stream, x, dtype, matrix, rows, columns, stride, squares)) return;
  const std::size_t bytes = rows * columns * (sizeof(float) + size_of(dtype)) + sizeof(double);
  launch_typed(stream, dtype, runtime::elementwise_cost(bytes, dtype),
               [=]<typename T>(runtime::ComputePool& pool, T) {
                 const auto sum = static_cast<float>(*squares);
                 // The difference is 0, or NaN if the sum is not finite.
                 const float norm = std::max(std::sqrt(sum), 1e-7f) + (sum - sum);
                 for_each_row(pool, rows, [&](std::size_t row) {
                   simd::for_lanes(0, columns, [&](std::size_t c, auto count) {
                     simd::store(static_cast<T*>(x) + row * columns + c,
                                 simd::load(matrix + row * stride + c, count) / norm, count);
                   });
                 });
               });
}

void newton_schulz_factor(runtime::StreamView stream, void* squared, const void* a, DType dtype, std::size_t size,
                          float scale) {
  if (ran_on_gpu<newton_schulz_factor_cuda>(stream, squared, a, dtype, size, scale)) return;
  const std::size_t bytes = bytes_of(3 * size * size, dtype);
  launch_typed(
      stream, dtype, runtime::elementwise_cost(bytes, dtype), [=]<typename T>(runtime::ComputePool& pool, T) {
        for_each_row(pool, size, [&](std::size_t row) {
          const T* const from = static_cast<const T*>(a) + row * size;
          T* const to = static_cast<T*>(squared) + row * size;
          const auto value = [&](std::size_t c, auto count) {
            const simd::Floats once = simd::load(from + c, count) * newton_schulz_once;
            return (once + simd::load(to + c, count) * newton_schulz_twice) * scale;
          };
          const float diagonal = value(row, std::size_t{1})[0] + scale * newton_schulz_identity;
          simd::for_lanes(0, size, [&](std::size_t c, auto count) { simd::store(to + c, value(c, count), count); });
          to[row] = runtime::from_float<T>(diagonal);
        });
      });
}

}  // namespace ranvier::models
