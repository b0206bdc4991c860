#include "models/ops/swiglu.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/small_task.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {
namespace {

using simd::Floats;

struct Sigmoid {
  Floats s;     ///< 1 / (1 + e^-x)
  Floats rest;  ///< 1 - s, without cancellation
};

/// For results stored as T.
template <typename T>
Sigmoid sigmoid(Floats x) {
  const Floats e = simd::bounded_exp2<T>(x * -1.4426950409f);  // e^-x
  const Floats s = simd::reciprocal<T>(1.0f + e);
  return {s, e * s};
}

/// Cost of reading or writing `arrays` arrays [N, F]; gate_up counts as two.
runtime::WorkCost cost_of(runtime::DType dtype, std::size_t arrays, std::size_t rows, std::size_t channels) {
  return memory_cost(runtime::WorkKind::activation, dtype, bytes_of(arrays * rows * channels, dtype));
}

}  // namespace

void swiglu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                    std::size_t rows, std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  if (ran_on_gpu<swiglu_forward_cuda>(stream, dtype, y, gate_up, rows, channels)) return;
  launch_typed(stream, dtype, cost_of(dtype, 3, rows, channels), [=](runtime::ComputePool& pool, auto type) {
    using T = decltype(type);
    for_each_row(pool, rows, [&](std::size_t row) {
      auto* const to = static_cast<T*>(y) + row * channels;
      const auto* const gate = static_cast<const T*>(gate_up) + row * 2 * channels;
      const auto* const up = gate + channels;
      simd::for_lanes(0, channels, [&](std::size_t i, auto count) {
        const Floats x = simd::load(gate + i, count);
        simd::store(to + i, x * sigmoid<T>(x).s * simd::load(up + i, count), count);
      });
    });
  });
}

void swiglu_backward(runtime::StreamView stream, runtime::DType dtype, const void* d, void* gate_up, void* y,
                     std::size_t rows, std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  if (ran_on_gpu<swiglu_backward_cuda>(stream, dtype, d, gate_up, y, rows, channels)) return;
  launch_typed(stream, dtype, cost_of(dtype, y != nullptr ? 6 : 5, rows, channels),
               [=](runtime::ComputePool& pool, auto type) {
                 using T = decltype(type);
                 for_each_row(pool, rows, [&](std::size_t row) {
                   auto* const gradient = static_cast<const T*>(d) + row * channels;
                   auto* const inner = y != nullptr ? static_cast<T*>(y) + row * channels : nullptr;
                   auto* const gate = static_cast<T*>(gate_up) + row * 2 * channels;
                   auto* const up = gate + channels;
                   simd::for_lanes(0, channels, [&](std::size_t i, auto count) {
                     const Floats x = simd::load(gate + i, count), through = simd::load(up + i, count);
                     const Floats dy = simd::load(gradient + i, count);
                     const auto [s, rest] = sigmoid<T>(x);
                     const Floats silu = x * s;
                     simd::store(gate + i, dy * through * (s + silu * rest), count);
                     simd::store(up + i, dy * silu, count);
                     if (inner != nullptr) simd::store(inner + i, silu * through, count);
                   });
                 });
               });
}

}  // namespace ranvier::models
