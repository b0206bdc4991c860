#include "models/ops/rms_norm.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/norm_rows.hpp"
#include "models/ops/small_task.hpp"
#include "runtime/base/arithmetic.hpp"

#include <cmath>

namespace ranvier::models {
namespace {

using simd::Floats;

/// Offset of group i of all rows, with rows `stride` apart.
std::size_t begin_of(const RmsNormShape& shape, std::size_t i, std::size_t stride) {
  return i / shape.groups * stride + i % shape.groups * shape.channels;
}

template <typename T>
void normalise(T* y, const T* x, float rstd, const T* weight, std::size_t channels) {
  simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
    simd::store(y + c, simd::load(x + c, count) * rstd * simd::load(weight + c, count), count);
  });
}

template <typename T>
void forward_group(const RmsNormShape& shape, const RmsNormForward& arrays, std::size_t i) {
  const std::size_t at = begin_of(shape, i, shape.x_row()), channels = shape.channels;
  const T* const x = norm_input<T>(arrays.x, arrays.branch, arrays.sum, at, channels);
  const float squares = simd::sum_over(x, channels, [](Floats value) { return value * value; });
  arrays.rstd[i] = 1.0f / std::sqrt(squares / static_cast<float>(channels) + shape.epsilon);
  normalise(static_cast<T*>(arrays.y) + begin_of(shape, i, shape.y_row()), x, arrays.rstd[i],
            static_cast<const T*>(arrays.weight), channels);
}

/// Computes one group of dx; adds to sums[C].
template <typename T>
void backward_group(const RmsNormShape& shape, const RmsNormBackward& arrays, std::size_t i, float* sums) {
  const std::size_t channels = shape.channels, at = begin_of(shape, i, shape.y_row());
  const T* x = static_cast<const T*>(arrays.x) + begin_of(shape, i, shape.x_row());
  const T* dy = static_cast<const T*>(arrays.dy) + at;
  const T* weight = static_cast<const T*>(arrays.weight);
  const float rstd = arrays.rstd[i];

  Floats product{};
  simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
    const Floats along = simd::load(dy + c, count) * (simd::load(x + c, count) * rstd);
    product += along * simd::load(weight + c, count);
    simd::store(sums + c, simd::load(sums + c, count) + along, count);
  });

  const float mean_product = simd::sum(product) / static_cast<float>(channels);
  with_residual<T>(arrays.residual, at, [&](auto residual) {
    T* dx = static_cast<T*>(arrays.dx) + at;
    simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
      const Floats normal = simd::load(x + c, count) * rstd;
      const Floats weighted = simd::load(dy + c, count) * simd::load(weight + c, count);
      simd::store(dx + c, (weighted - normal * mean_product) * rstd + residual(c, count), count);
    });
  });
}

/// Calls f(i) for every group, on the pool's threads.
template <typename F>
void for_each_group(runtime::ComputePool& pool, const RmsNormShape& shape, F f) {
  run_pieces(pool, shape.rows, [&](int thread, int threads) {
    const auto share = runtime::share_of(shape.rows * shape.groups, thread, threads);
    for (std::size_t i = share.begin; i < share.end; ++i) f(i);
  });
}

void check(const RmsNormShape& shape, runtime::DType dtype) {
  expect_kernel(dtype, "RMS norm");
  const std::size_t row = shape.groups * shape.channels;
  expect(shape.x_row() >= row && shape.y_row() >= row, "RMS norm of {} times {} channels in rows of {} and {}",
         shape.groups, shape.channels, shape.x_row(), shape.y_row());
}

/// Cost of reading or writing `arrays` arrays [N, G, C], rstd per group, and the weight.
runtime::WorkCost cost_of(const RmsNormShape& shape, runtime::DType dtype, std::size_t arrays,
                          std::size_t more = 0) {
  const std::size_t groups = shape.rows * shape.groups;
  return memory_cost(runtime::WorkKind::norm, dtype,
                     bytes_of((arrays * groups + 1) * shape.channels, dtype) + groups * sizeof(float) + more);
}

}  // namespace

void rms_norm_forward(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                      const RmsNormForward& arrays) {
  check(shape, dtype);
  if (ran_on_gpu<rms_norm_forward_cuda>(stream, shape, dtype, arrays)) return;
  stream.launch(cost_of(shape, dtype, arrays.branch == nullptr ? 2 : 4), [=](runtime::ComputePool& pool) {
    runtime::with_float_type(dtype, [&](auto type) {
      for_each_group(pool, shape, [&](std::size_t i) { forward_group<decltype(type)>(shape, arrays, i); });
    });
  });
}

void rms_norm_again(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype, void* y,
                    const float* rstd, const void* x, const void* weight) {
  check(shape, dtype);
  if (ran_on_gpu<rms_norm_again_cuda>(stream, shape, dtype, y, rstd, x, weight)) return;
  stream.launch(cost_of(shape, dtype, 2), [=](runtime::ComputePool& pool) {
    runtime::with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      for_each_group(pool, shape, [&](std::size_t i) {
        normalise(static_cast<T*>(y) + begin_of(shape, i, shape.y_row()),
                  static_cast<const T*>(x) + begin_of(shape, i, shape.x_row()), rstd[i],
                  static_cast<const T*>(weight), shape.channels);
      });
    });
  });
}

std::size_t rms_norm_workspace_bytes(const RmsNormShape& shape) {
  return runtime::ceil_divide(shape.rows * shape.groups, rms_norm_block_groups) * shape.channels * sizeof(float);
}

void rms_norm_backward(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                       const RmsNormBackward& arrays) {
  check(shape, dtype);
  if (ran_on_gpu<rms_norm_backward_cuda>(stream, shape, dtype, arrays)) return;
  const runtime::WorkCost cost =
      cost_of(shape, dtype, arrays.residual == nullptr ? 3 : 4, shape.channels * sizeof(float));
  stream.launch(cost, [=](runtime::ComputePool& pool) {
    runtime::with_float_type(dtype, [&](auto type) {
      sum_rows(pool, shape.rows * shape.groups, rms_norm_block_groups, shape.channels, arrays.workspace,
               arrays.weight_sums,
               [&](std::size_t i, float* sums) { backward_group<decltype(type)>(shape, arrays, i, sums); });
    });
  });
}

}  // namespace ranvier::models
