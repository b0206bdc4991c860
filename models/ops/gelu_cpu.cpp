#include "models/ops/gelu_cpu.hpp"

#include "models/ops/vector_math.hpp"

#include <type_traits>

namespace ranvier::models {
namespace {

using simd::Floats;

constexpr float twice_root = 1.5957691216f;  // 2√(2/π)
constexpr float cubic = 0.044715f;
constexpr float log2_e = 1.4426950409f;

// With u the argument of tanh, (1 + tanh u)/2 = 1/(1 + e^-2u) = s: no cancellation for large negative x.
struct Sigmoid {
  Floats s;
  Floats rest;  ///< 1 - s
};

/// For results that are stored as T.
template <typename T>
Sigmoid sigmoid(Floats x) {
  const Floats exponent = x * (-twice_root * log2_e - twice_root * cubic * log2_e * (x * x));  // e^-2u = 2^this
  const Floats bound = simd::broadcast(125.0f);
  const Floats bounded = simd::max(simd::min(exponent, bound), -bound);
  const Floats e = std::is_same_v<T, float> ? simd::exp2(bounded) : simd::exp2_for_half(bounded);
  const Floats s = 1.0f / (1.0f + e);
  return {s, e * s};
}

}  // namespace

void gelu_forward_cpu(runtime::ComputePool& pool, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    auto* const to = static_cast<T*>(y);
    auto* const from = static_cast<const T*>(x);
    pool.run([&](int thread, int threads) {
      const auto share = runtime::share_of(n, thread, threads, 64);
      simd::for_lanes(share.begin, share.end, [&](std::size_t i, auto count) {
        const Floats value = simd::load(from + i, count);
        simd::store(to + i, value * sigmoid<T>(value).s, count);
      });
    });
  });
}

void gelu_backward_cpu(runtime::ComputePool& pool, runtime::DType dtype, void* d, void* x, std::size_t n) {
  runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    auto* const gradient = static_cast<T*>(d);
    auto* const values = static_cast<T*>(x);
    pool.run([&](int thread, int threads) {
      const auto share = runtime::share_of(n, thread, threads, 64);
      simd::for_lanes(share.begin, share.end, [&](std::size_t i, auto count) {
        const Floats value = simd::load(values + i, count);
        const auto [s, rest] = sigmoid<T>(value);
        const Floats slope = twice_root + 3.0f * twice_root * cubic * (value * value);  // of 2u
        const Floats derivative = s + value * slope * (s * rest);
        simd::store(gradient + i, simd::load(gradient + i, count) * derivative, count);
        simd::store(values + i, value * s, count);
      });
    });
  });
}

}  // namespace ranvier::models
