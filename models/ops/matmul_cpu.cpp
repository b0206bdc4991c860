#include "models/ops/matmul_cpu.hpp"

#include "models/ops/library_matmul.hpp"
#include "models/ops/vector_math.hpp"

#include <algorithm>
#include <vector>

namespace ranvier::models {
namespace {

using runtime::DType;

void widen(float* to, const void* from, DType dtype, std::size_t n) {
  runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    const auto* source = static_cast<const T*>(from);
    for (std::size_t i = 0; i < n; i += simd::lanes) {
      const std::size_t count = std::min(n - i, simd::lanes);
      simd::store(to + i, simd::load(source + i, count), count);
    }
  });
}

}  // namespace

void matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays) {
  pool.run([&](int thread, int threads) {
    const auto [begin, end] = runtime::share_of(shape.m, thread, threads, 16);
    if (begin == end) return;
    const std::size_t m = end - begin, n = shape.n, k = shape.k;
    const auto at = [](const void* array, DType dtype, std::size_t offset) {
      return static_cast<const std::byte*>(array) + offset * size_of(dtype);
    };
    std::vector<float> a(m * k), b(n * k), bias(arrays.bias != nullptr ? n : 0), c(m * n);
    if (shape.transpose_a) {
      std::vector<float> row(m);
      for (std::size_t p = 0; p < k; ++p) {
        widen(row.data(), at(arrays.a, arrays.dtype, p * shape.m + begin), arrays.dtype, m);
        for (std::size_t i = 0; i < m; ++i) a[i * k + p] = row[i];
      }
    } else {
      widen(a.data(), at(arrays.a, arrays.dtype, begin * k), arrays.dtype, m * k);
    }
    widen(b.data(), arrays.b, arrays.dtype, n * k);
    if (arrays.bias != nullptr) widen(bias.data(), arrays.bias, arrays.dtype, n);
    auto* result = static_cast<std::byte*>(arrays.c) + begin * n * size_of(arrays.c_dtype);
    if (arrays.accumulate) widen(c.data(), result, arrays.c_dtype, m * n);
    if (k != 0) {
      library_matmul({.m = m, .n = n, .k = k, .transpose_b = shape.transpose_b, .has_bias = !bias.empty(),
                      .accumulate = arrays.accumulate, .lda = k, .ldb = shape.transpose_b ? k : n, .ldc = n},
                     c.data(), a.data(), b.data(), bias.data());
    } else {
      for (std::size_t i = 0; i < m && !bias.empty(); ++i) std::copy(bias.begin(), bias.end(), c.data() + i * n);
    }
    runtime::with_float_type(arrays.c_dtype, [&](auto type) {
      using T = decltype(type);
      for (std::size_t i = 0; i < m * n; ++i) reinterpret_cast<T*>(result)[i] = runtime::from_float<T>(c[i]);
    });
  });
}

void column_sums_cpu(runtime::ComputePool& pool, void* sums, DType sums_dtype, const void* dy, DType dtype,
                     std::size_t m, std::size_t n, bool accumulate) {
  pool.run([&](int thread, int threads) {
    const auto [begin, end] = runtime::share_of(n, thread, threads, 64);
    runtime::with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      runtime::with_float_type(sums_dtype, [&](auto sums_type) {
        using S = decltype(sums_type);
        auto* to = static_cast<S*>(sums);
        for (std::size_t j = begin; j < end; j += simd::lanes) {
          const std::size_t count = std::min(end - j, simd::lanes);
          simd::Floats sum{};
          for (std::size_t i = 0; i < m; ++i) sum += simd::load(static_cast<const T*>(dy) + i * n + j, count);
          if (accumulate) sum += simd::load(to + j, count);
          simd::store(to + j, sum, count);
        }
      });
    });
  });
}

}  // namespace ranvier::models
