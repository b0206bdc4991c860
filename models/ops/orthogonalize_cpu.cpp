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

constexpr int newton_schulz_steps = 5;

/// Offsets of the workspace's arrays.
struct OrthogonalizeArrays : MemoryLayout {
  OrthogonalizeArrays(std::size_t rows, std::size_t columns)
      : row_blocks(runtime::ceil_divide(columns, runtime::squares_block_elements)) {
    const std::size_t size = std::min(rows, columns);
    x = add(rows * columns, sizeof(float));
    a = add(size * size, sizeof(float));
    squared = add(size * size, sizeof(float));
    sums = add(rows * row_blocks, sizeof(float));
    total = add(1, sizeof(double));
  }

  std::size_t row_blocks;  ///< sums of squares per row
  std::size_t x;           ///< [R, C] every other iterate; the matrix holds the others
  std::size_t a;           ///< [S, S] A
  std::size_t squared;     ///< [S, S] A², then the polynomial of A
  std::size_t sums;        ///< [R, row_blocks]
  std::size_t total;       ///< double: sum of squares
};

}  // namespace

float muon_scale(std::size_t rows, std::size_t columns) {
  return 0.2f * std::sqrt(static_cast<float>(std::max(rows, columns)));
}

std::size_t orthogonalize_workspace(std::size_t rows, std::size_t columns) {
  return OrthogonalizeArrays(rows, columns).bytes();
}

void orthogonalize(runtime::StreamView stream, float* matrix, std::size_t rows, std::size_t columns,
                   std::size_t stride, float scale, std::byte* workspace) {
  expect(rows > 0 && columns > 0 && stride >= columns, "orthogonalize of {} × {} elements in rows of {}", rows,
         columns, stride);
  const OrthogonalizeArrays at(rows, columns);
  const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(workspace + offset); };
  float *const a = floats(at.a), *const squared = floats(at.squared);
  auto* const total = reinterpret_cast<double*>(workspace + at.total);
  runtime::sums_of_squares(stream, floats(at.sums), at.row_blocks, matrix, {columns, stride}, runtime::DType::f32,
                           rows * columns);
  runtime::sum(stream, total, floats(at.sums), rows * at.row_blocks);
  divide_by_norm(stream, floats(at.x), matrix, rows, columns, stride, total);

  const bool wide = rows <= columns;
  const std::size_t size = std::min(rows, columns);
  float *from = floats(at.x), *to = matrix;
  std::size_t from_stride = columns, to_stride = stride;
  static_assert(newton_schulz_steps % 2 == 1, "the last iterate is the matrix");
  for (int step = 0; step < newton_schulz_steps; ++step) {
    matmul(stream,
           {.m = size,
            .n = size,
            .k = std::max(rows, columns),
            .transpose_a = !wide,
            .transpose_b = wide,
            .a_stride = from_stride,
            .b_stride = from_stride},
           {.c = a, .a = from, .b = from});
    matmul(stream, {.m = size, .n = size, .k = size}, {.c = squared, .a = a, .b = a});
    newton_schulz_factor(stream, squared, a, size, step + 1 < newton_schulz_steps ? 1.0f : scale);
    matmul(stream,
           {.m = rows,
            .n = columns,
            .k = size,
            .a_stride = wide ? 0 : from_stride,
            .b_stride = wide ? from_stride : 0,
            .c_stride = to_stride},
           {.c = to, .a = wide ? squared : from, .b = wide ? from : squared});
    std::swap(from, to);
    std::swap(from_stride, to_stride);
  }
}

void divide_by_norm(runtime::StreamView stream, float* x, const float* matrix, std::size_t rows,
                    std::size_t columns, std::size_t stride, const double* squares) {
  if (ran_on_gpu<divide_by_norm_cuda>(stream, x, matrix, rows, columns, stride, squares)) return;
  stream.launch(runtime::elementwise_cost(2 * rows * columns * sizeof(float) + sizeof(double)),
                [=](runtime::ComputePool& pool) {
                  const auto sum = static_cast<float>(*squares);
                  // The difference is 0, or NaN if the sum is not finite.
                  const float norm = std::max(std::sqrt(sum), 1e-7f) + (sum - sum);
                  for_each_row(pool, rows, [&](std::size_t row) {
                    simd::for_lanes(0, columns, [&](std::size_t c, auto count) {
                      simd::store(x + row * columns + c, simd::load(matrix + row * stride + c, count) / norm,
                                  count);
                    });
                  });
                });
}

void newton_schulz_factor(runtime::StreamView stream, float* squared, const float* a, std::size_t size,
                          float scale) {
  if (ran_on_gpu<newton_schulz_factor_cuda>(stream, squared, a, size, scale)) return;
  stream.launch(runtime::elementwise_cost(3 * size * size * sizeof(float)), [=](runtime::ComputePool& pool) {
    for_each_row(pool, size, [&](std::size_t row) {
      float* const to = squared + row * size;
      simd::for_lanes(0, size, [&](std::size_t c, auto count) {
        const simd::Floats once = simd::load(a + row * size + c, count) * newton_schulz_once;
        simd::store(to + c, (once + simd::load(to + c, count) * newton_schulz_twice) * scale, count);
      });
      to[row] += scale * newton_schulz_identity;
    });
  });
}

}  // namespace ranvier::models
