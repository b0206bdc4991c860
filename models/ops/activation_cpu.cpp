#include "models/ops/activation.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

#include <cmath>
#include <type_traits>

namespace ranvier::models {
namespace {

using simd::Floats;

constexpr float twice_root = 1.5957691216f;  // 2√(2/π)
constexpr float cubic = 0.044715f;
constexpr float log2_of_e = 1.4426950409f;

constexpr std::size_t least = 4096;  // minimum number of elements for a second thread

struct Gelu {
  Floats value, slope;  ///< gelu(x), gelu'(x)
};

struct Sigmoid {
  Floats s;     ///< 1 / (1 + 2^exponent)
  Floats rest;  ///< 1 - s, without cancellation
};

/// For results stored as T.
template <typename T>
Sigmoid sigmoid(Floats exponent) {
  const Floats e = simd::bounded_exp2<T>(exponent);
  const Floats s = simd::reciprocal<T>(1.0f + e);
  return {s, e * s};
}

/// With u the argument of tanh, (1 + tanh u)/2 = 1/(1 + e^-2u) = s: no cancellation for large negative x.
template <typename T>
struct TanhForm {
  static Gelu of(Floats x) {
    const auto [s, rest] =
        sigmoid<T>(x * (-twice_root * log2_of_e - twice_root * cubic * log2_of_e * (x * x)));  // -2u, to base 2
    const Floats slope = twice_root + 3.0f * twice_root * cubic * (x * x);                     // derivative of 2u
    return {x * s, s + x * slope * (s * rest)};
  }
};

/// Φ(-|x|) = e^(-x²/2) · t · p(t) with t = 1/(1 + |x|/√8), without cancellation. p is a Chebyshev fit for |x| up to
/// 13.4, with relative error at most 6e-8, or 1.2e-6 for results in half precision.
template <typename T>
struct ErfForm {
  static Gelu of(Floats x) {
    const Floats e = simd::bounded_exp2<T>(-0.5f * log2_of_e * (x * x)), a = simd::abs(x);
    const Floats t = simd::reciprocal<T>(1.0f + 0.35355339059f * a);
    const Floats tail = e * (t * polynomial(t));
    const Floats gate = x > 0.0f ? 1.0f - tail : tail;
    const Floats slope = gate + x * 0.39894228040f * e;
    if constexpr (std::is_same_v<T, float>) {
      return {x * gate, slope};
    } else {
      return {simd::max(Floats{}, x) - a * tail, slope};  // x · Φ(x) in fewer steps
    }
  }

 private:
  static Floats polynomial(Floats t) {
    if constexpr (std::is_same_v<T, float>) {
      return simd::polynomial(t, -2.9669062960e-02f, 1.4298983591e-01f, -2.4513802344e-01f, 1.4087109670e-01f,
                              -1.4615549127e-02f, 1.0190113045e-01f, 1.2141204537e-01f, 1.4120630662e-01f,
                              1.4104220069e-01f);
    } else {
      const Floats square = t * t;  // in pairs: half as many dependent steps
      const Floats high = (4.4584955777e-02f * square + 1.9700018892e-01f) * square + 1.4138960375e-01f;
      const Floats odd = (-1.8007155589e-01f * square + 1.7250572294e-02f) * square + 1.3867119106e-01f;
      return (high * square + 1.4117445714e-01f) + odd * t;
    }
  }
};

template <typename Form, typename T>
void gelu_values(runtime::ComputePool& pool, T* y, const T* x, std::size_t n) {
  run_pieces(pool, n / least, [&](int thread, int threads) {
    const auto share = runtime::share_of(n, thread, threads, 64);
    simd::for_lanes(share.begin, share.end, [&](std::size_t i, auto count) {
      simd::store(y + i, Form::of(simd::load(x + i, count)).value, count);
    });
  });
}

template <typename Form, typename T>
void gelu_gradients(runtime::ComputePool& pool, T* d, const T* x, T* y, std::size_t n) {
  pool.run([&](int thread, int threads) {
    const auto share = runtime::share_of(n, thread, threads, 64);
    simd::for_lanes(share.begin, share.end, [&](std::size_t i, auto count) {
      const Gelu gelu = Form::of(simd::load(x + i, count));
      simd::store(d + i, simd::load(d + i, count) * gelu.slope, count);
      if (y != nullptr) simd::store(y + i, gelu.value, count);
    });
  });
}

/// Calls f(i) for every element, on the pool's threads.
template <typename F>
void for_each_element(runtime::ComputePool& pool, std::size_t n, const F& f) {
  run_pieces(pool, n / least, [&](int thread, int threads) {
    const auto share = runtime::share_of(n, thread, threads, 64);
    for (std::size_t i = share.begin; i < share.end; ++i) f(i);
  });
}

/// Cost of reading or writing this number of elements.
runtime::WorkCost activation_cost(runtime::DType dtype, std::size_t elements) {
  return memory_cost(runtime::WorkKind::activation, dtype, bytes_of(elements, dtype));
}

}  // namespace

void gelu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n,
                  GeluForm form) {
  expect_kernel(dtype, "gelu");
  if (ran_on_gpu<gelu_forward_cuda>(stream, dtype, y, x, n, form)) return;
  launch_typed(stream, dtype, activation_cost(dtype, 2 * n), [=]<typename T>(runtime::ComputePool& pool, T) {
    const auto run = form == GeluForm::tanh ? gelu_values<TanhForm<T>, T> : gelu_values<ErfForm<T>, T>;
    run(pool, static_cast<T*>(y), static_cast<const T*>(x), n);
  });
}

void gelu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* x, void* y, std::size_t n,
                   GeluForm form) {
  expect_kernel(dtype, "gelu");
  if (ran_on_gpu<gelu_backward_cuda>(stream, dtype, d, x, y, n, form)) return;
  const runtime::WorkCost cost = activation_cost(dtype, (y != nullptr ? 4 : 3) * n);
  launch_typed(stream, dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T) {
    const auto run = form == GeluForm::tanh ? gelu_gradients<TanhForm<T>, T> : gelu_gradients<ErfForm<T>, T>;
    run(pool, static_cast<T*>(d), static_cast<const T*>(x), static_cast<T*>(y), n);
  });
}

void swiglu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                    std::size_t rows, std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  if (ran_on_gpu<swiglu_forward_cuda>(stream, dtype, y, gate_up, rows, channels)) return;
  launch_typed(stream, dtype, activation_cost(dtype, 3 * rows * channels),
               [=]<typename T>(runtime::ComputePool& pool, T) {
                 for_each_row(pool, rows, [&](std::size_t row) {
                   auto* const to = static_cast<T*>(y) + row * channels;
                   const auto* const gate = static_cast<const T*>(gate_up) + row * 2 * channels;
                   const auto* const up = gate + channels;
                   simd::for_lanes(0, channels, [&](std::size_t i, auto count) {
                     const Floats x = simd::load(gate + i, count);
                     simd::store(to + i, x * sigmoid<T>(x * -log2_of_e).s * simd::load(up + i, count), count);
                   });
                 });
               });
}

void swiglu_backward(runtime::StreamView stream, runtime::DType dtype, const void* d, void* gate_up, void* y,
                     std::size_t rows, std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  if (ran_on_gpu<swiglu_backward_cuda>(stream, dtype, d, gate_up, y, rows, channels)) return;
  launch_typed(stream, dtype, activation_cost(dtype, (y != nullptr ? 6 : 5) * rows * channels),
               [=]<typename T>(runtime::ComputePool& pool, T) {
                 for_each_row(pool, rows, [&](std::size_t row) {
                   auto* const gradient = static_cast<const T*>(d) + row * channels;
                   auto* const inner = y != nullptr ? static_cast<T*>(y) + row * channels : nullptr;
                   auto* const gate = static_cast<T*>(gate_up) + row * 2 * channels;
                   auto* const up = gate + channels;
                   simd::for_lanes(0, channels, [&](std::size_t i, auto count) {
                     const Floats x = simd::load(gate + i, count), through = simd::load(up + i, count);
                     const Floats dy = simd::load(gradient + i, count);
                     const auto [s, rest] = sigmoid<T>(x * -log2_of_e);
                     const Floats silu = x * s;
                     simd::store(gate + i, dy * through * (s + silu * rest), count);
                     simd::store(up + i, dy * silu, count);
                     if (inner != nullptr) simd::store(inner + i, silu * through, count);
                   });
                 });
               });
}

void tanh_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  expect_kernel(dtype, "tanh");
  if (ran_on_gpu<tanh_forward_cuda>(stream, dtype, y, x, n)) return;
  launch_typed(stream, dtype, activation_cost(dtype, 2 * n), [=]<typename T>(runtime::ComputePool& pool, T) {
    auto* const to = static_cast<T*>(y);
    auto* const from = static_cast<const T*>(x);
    for_each_element(pool, n,
                     [&](std::size_t i) { to[i] = runtime::from_float<T>(std::tanh(runtime::to_float(from[i]))); });
  });
}

void tanh_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* y, std::size_t n) {
  expect_kernel(dtype, "tanh");
  if (ran_on_gpu<tanh_backward_cuda>(stream, dtype, d, y, n)) return;
  launch_typed(stream, dtype, activation_cost(dtype, 3 * n), [=]<typename T>(runtime::ComputePool& pool, T) {
    auto* const gradient = static_cast<T*>(d);
    auto* const values = static_cast<const T*>(y);
    for_each_element(pool, n, [&](std::size_t i) {
      const float value = runtime::to_float(values[i]);
      gradient[i] = runtime::from_float<T>(runtime::to_float(gradient[i]) * (1 - value * value));
    });
  });
}

}  // namespace ranvier::models
