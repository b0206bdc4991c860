#include "models/ops/layer_norm.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/norm_rows.hpp"
#include "models/ops/small_task.hpp"
#include "runtime/base/arithmetic.hpp"

#include <cmath>

namespace ranvier::models {
namespace {

using simd::Floats;

struct Moments {
  float mean;
  float rstd;
};

template <typename T>
Moments moments(const T* x, std::size_t channels, float epsilon) {
  const float scale = 1.0f / static_cast<float>(channels);
  const float mean = simd::sum_over(x, channels, [](Floats value) { return value; }) * scale;
  const float squares =
      simd::sum_over(x, channels, [mean](Floats value) { return (value - mean) * (value - mean); });
  return {mean, 1.0f / std::sqrt(squares * scale + epsilon)};
}

template <typename T>
void normalise(T* y, const T* x, Moments m, const T* weight, const T* bias, std::size_t channels) {
  simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
    const Floats normal = (simd::load(x + c, count) - m.mean) * m.rstd;
    simd::store(y + c, normal * simd::load(weight + c, count) + simd::load(bias + c, count), count);
  });
}

template <typename T>
void forward_row(const LayerNormForward& arrays, std::size_t row, std::size_t channels, float epsilon) {
  const T* const x = norm_input<T>(arrays.x, arrays.branch, arrays.sum, row * channels, channels);
  const Moments m = moments(x, channels, epsilon);
  arrays.mean[row] = m.mean;
  arrays.rstd[row] = m.rstd;
  normalise(static_cast<T*>(arrays.y) + row * channels, x, m, static_cast<const T*>(arrays.weight),
            static_cast<const T*>(arrays.bias), channels);
}

/// One row of dx; adds the row to sums[2, C].
template <typename T>
void backward_row(const LayerNormBackward& arrays, std::size_t row, std::size_t channels, float* sums) {
  const T* x = static_cast<const T*>(arrays.x) + row * channels;
  const T* dy = static_cast<const T*>(arrays.dy) + row * channels;
  const T* weight = static_cast<const T*>(arrays.weight);
  const float mean = arrays.mean[row], rstd = arrays.rstd[row];

  Floats total{}, product{};
  simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
    const Floats gradient = simd::load(dy + c, count);
    const Floats normal = (simd::load(x + c, count) - mean) * rstd;
    const Floats weighted = gradient * simd::load(weight + c, count);  // zero past the end, like gradient
    total += weighted;
    product += weighted * normal;
    simd::store(sums + c, simd::load(sums + c, count) + gradient * normal, count);
    simd::store(sums + channels + c, simd::load(sums + channels + c, count) + gradient, count);
  });

  const float scale = 1.0f / static_cast<float>(channels);
  const float mean_total = simd::sum(total) * scale, mean_product = simd::sum(product) * scale;
  with_residual<T>(arrays.residual, row * channels, [&](auto residual) {
    T* dx = static_cast<T*>(arrays.dx) + row * channels;
    simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
      const Floats normal = (simd::load(x + c, count) - mean) * rstd;
      const Floats weighted = simd::load(dy + c, count) * simd::load(weight + c, count);
      const Floats value = (weighted - mean_total - normal * mean_product) * rstd;
      simd::store(dx + c, value + residual(c, count), count);
    });
  });
}

/// Cost of reading or writing `arrays` arrays [N, C], mean and rstd per row, and some arrays [C] of the run's dtype.
runtime::WorkCost cost_of(const LayerNormShape& shape, runtime::DType dtype, std::size_t arrays,
                          std::size_t parameters, std::size_t more = 0) {
  return memory_cost(
      runtime::WorkKind::norm, dtype,
      bytes_of((arrays * shape.rows + parameters) * shape.channels, dtype) + 2 * shape.rows * sizeof(float) + more);
}

}  // namespace

void layer_norm_forward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                        const LayerNormForward& arrays) {
  expect_kernel(dtype, "layer norm");
  if (ran_on_gpu<layer_norm_forward_cuda>(stream, shape, dtype, arrays)) return;
  stream.launch(cost_of(shape, dtype, arrays.branch == nullptr ? 2 : 4, 2), [=](runtime::ComputePool& pool) {
    runtime::with_float_type(dtype, [&](auto type) {
      for_each_row(pool, shape.rows, [&](std::size_t row) {
        forward_row<decltype(type)>(arrays, row, shape.channels, shape.epsilon);
      });
    });
  });
}

void layer_norm_again(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype, void* y,
                      const float* mean, const float* rstd, const void* x, const void* weight, const void* bias) {
  expect_kernel(dtype, "layer norm");
  if (ran_on_gpu<layer_norm_again_cuda>(stream, shape, dtype, y, mean, rstd, x, weight, bias)) return;
  stream.launch(cost_of(shape, dtype, 2, 2), [=](runtime::ComputePool& pool) {
    runtime::with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      for_each_row(pool, shape.rows, [&](std::size_t row) {
        const std::size_t first = row * shape.channels;
        normalise(static_cast<T*>(y) + first, static_cast<const T*>(x) + first, {mean[row], rstd[row]},
                  static_cast<const T*>(weight), static_cast<const T*>(bias), shape.channels);
      });
    });
  });
}

std::size_t layer_norm_workspace_bytes(const LayerNormShape& shape) {
  return runtime::ceil_divide(shape.rows, layer_norm_block_rows) * 2 * shape.channels * sizeof(float);
}

void layer_norm_backward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                         const LayerNormBackward& arrays) {
  expect_kernel(dtype, "layer norm");
  if (ran_on_gpu<layer_norm_backward_cuda>(stream, shape, dtype, arrays)) return;
  const runtime::WorkCost cost =
      cost_of(shape, dtype, arrays.residual == nullptr ? 3 : 4, 1, 2 * shape.channels * sizeof(float));
  stream.launch(cost, [=](runtime::ComputePool& pool) {
    runtime::with_float_type(dtype, [&](auto type) {
      sum_rows(
          pool, shape.rows, layer_norm_block_rows, 2 * shape.channels, arrays.workspace, arrays.sums,
          [&](std::size_t row, float* sums) { backward_row<decltype(type)>(arrays, row, shape.channels, sums); });
    });
  });
}

void store_gradient(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                    std::size_t n, bool accumulate) {
  expect_kernel(dtype, "store_gradient");
  const std::size_t bytes = n * sizeof(float) + bytes_of(n, dtype) * (accumulate ? 2 : 1);
  if (ran_on_gpu<store_gradient_cuda>(stream, gradient, dtype, sums, n, accumulate)) return;
  stream.launch(runtime::elementwise_cost(bytes, dtype), [=](runtime::ComputePool&) {
    runtime::with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      auto* const to = static_cast<T*>(gradient);

      simd::for_lanes(0, n, [&](std::size_t i, auto count) {
        const Floats value = simd::load(sums + i, count);
        simd::store(to + i, accumulate ? simd::load(to + i, count) + value : value, count);
      });
    });
  });
}

}  // namespace ranvier::models
