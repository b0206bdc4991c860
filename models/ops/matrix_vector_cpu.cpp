#include "models/ops/dispatch.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/scratch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {
namespace {

using simd::Floats;

/// a[K] · x[K] in independent partial sums: four for floats, eight for halves, so that a step has equally many bytes.
/// Rows are read one after another, because several at a time halve the bandwidth. Software prefetching halves the rate
/// of halves on Zen 4, and gains a tenth on Zen 5.
template <typename T>
float product(const T* a, const float* x, std::size_t k) {
  constexpr std::size_t parts = 16 / sizeof(T);
  Floats total[parts] = {};
  std::size_t i = 0;
  for (; i + parts * simd::lanes <= k; i += parts * simd::lanes) {
#pragma GCC unroll 8
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t at = i + part * simd::lanes;
      total[part] += simd::load(a + at) * simd::load(x + at);
    }
  }
  simd::for_lanes(
      i, k, [&](std::size_t at, auto count) { total[0] += simd::load(a + at, count) * simd::load(x + at, count); });
  for (std::size_t half = parts / 2; half > 0; half /= 2)
    for (std::size_t part = 0; part < half; ++part) total[part] += total[part + half];
  return simd::sum(total[0]);
}

}  // namespace

void matrix_vector(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  expect_kernel(arrays.dtype, "matrix_vector");
  expect(arrays.c_dtype == runtime::DType::f32 || arrays.c_dtype == arrays.dtype, "matrix_vector of {} to {}",
         to_string(arrays.dtype), to_string(arrays.c_dtype));
  expect(shape.m == 1 && shape.transpose_b && shape.b_row() == shape.k && !arrays.accumulate,
         "matrix_vector of M {}, N {}, K {}", shape.m, shape.n, shape.k);
  if (shape.n == 0) return;
  runtime::WorkCost cost = product_cost({.m = 1, .n = shape.n, .k = shape.k}, arrays.dtype, arrays.c_dtype, false);
  if (arrays.bias != nullptr) cost.bytes += static_cast<double>(bytes_of(shape.n, arrays.dtype));
  if (ran_on_gpu<matrix_vector_cuda>(stream, shape, arrays)) return;
  launch_typed(stream, arrays.dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T) {
    runtime::with_float_type(arrays.c_dtype, [&]<typename Y>(Y) {
      pool.run([&](int thread, int threads) {
        static thread_local Scratch memory;
        auto* const x = memory.get<float>(shape.k);
        simd::convert(x, static_cast<const T*>(arrays.a), shape.k);
        const auto* const b = static_cast<const T*>(arrays.b);
        const auto* const bias = static_cast<const T*>(arrays.bias);
        auto* const y = static_cast<Y*>(arrays.c);
        const auto share =
            runtime::share_of(shape.n, thread, threads, 64);  // so that each cache line has one writer
        for (std::size_t row = share.begin; row < share.end; ++row) {
          const float sum = product(b + row * shape.k, x, shape.k);
          y[row] = runtime::from_float<Y>(bias == nullptr ? sum : sum + runtime::to_float(bias[row]));
        }
      });
    });
  });
}

}  // namespace ranvier::models
