#include "models/ops/matrix_vector.hpp"

#include "models/ops/scratch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/compute_pool.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

using simd::Floats;

constexpr std::size_t rows_together = 4;  // which share the loads of x; their sums hide each other's latency

/// The products of `rows` rows from `a` on with x, to `sums`.
template <std::size_t rows, typename T>
void products(float* sums, const T* a, const float* x, std::size_t k) {
  Floats total[rows] = {};
  simd::for_lanes(0, k, [&](std::size_t i, auto count) {
    const Floats factor = simd::load(x + i, count);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < rows; ++r) total[r] += simd::load(a + r * k + i, count) * factor;
  });
  for (std::size_t r = 0; r < rows; ++r) sums[r] = simd::sum(total[r]);
}

}  // namespace

void matrix_vector_cpu(runtime::ComputePool& pool, const MatrixVectorShape& shape,
                       const MatrixVectorArrays& arrays) {
  runtime::with_float_type(arrays.dtype, [&](auto type) {
    using T = decltype(type);
    runtime::with_float_type(arrays.y_dtype, [&](auto y_type) {
      using Y = decltype(y_type);
      pool.run([&](int thread, int threads) {
        static thread_local Scratch memory;
        auto* const x = memory.get<float>(shape.k);
        simd::for_lanes(0, shape.k, [&](std::size_t i, auto count) {
          simd::store(x + i, simd::load(static_cast<const T*>(arrays.x) + i, count), count);
        });
        const auto* const a = static_cast<const T*>(arrays.a);
        const auto* const bias = static_cast<const T*>(arrays.bias);
        auto* const y = static_cast<Y*>(arrays.y);
        const auto share =
            runtime::share_of(shape.n, thread, threads, 64);  // so that no cache line has two writers
        float sums[rows_together];
        for (std::size_t row = share.begin; row < share.end; row += rows_together) {
          const std::size_t rows = std::min(rows_together, share.end - row);
          if (rows == rows_together) {
            products<rows_together>(sums, a + row * shape.k, x, shape.k);
          } else {
            for (std::size_t r = 0; r < rows; ++r) products<1>(sums + r, a + (row + r) * shape.k, x, shape.k);
          }
          for (std::size_t r = 0; r < rows; ++r) {
            const float sum = bias == nullptr ? sums[r] : sums[r] + runtime::to_float(bias[row + r]);
            y[row + r] = runtime::from_float<Y>(sum);
          }
        }
      });
    });
  });
}

}  // namespace ranvier::models
