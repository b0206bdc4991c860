#include "models/ops/norm.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace ranvier::models {
namespace {

using simd::Floats;

/// Offset of group i of all rows, with rows `stride` apart.
std::size_t begin_of(const NormShape& shape, std::size_t i, std::size_t stride) {
  return shape.groups == 1 ? i * stride : i / shape.groups * stride + i % shape.groups * shape.channels;
}

template <NormKind kind, typename T>
void normalise(const NormShape& shape, const NormForward& arrays, const T* x, std::size_t i) {
  T* const y = static_cast<T*>(arrays.y) + begin_of(shape, i, shape.y_row());
  const T *const weight = static_cast<const T*>(arrays.weight), *const bias = static_cast<const T*>(arrays.bias);
  const float rstd = arrays.rstd[i], mean = kind == NormKind::layer ? arrays.mean[i] : 0.0f;
  simd::for_lanes(0, shape.channels, [&](std::size_t c, auto count) {
    if constexpr (kind == NormKind::layer) {
      const Floats normal = (simd::load(x + c, count) - mean) * rstd;
      simd::store(y + c, normal * simd::load(weight + c, count) + simd::load(bias + c, count), count);
    } else {
      simd::store(y + c, simd::load(x + c, count) * rstd * simd::load(weight + c, count), count);
    }
  });
}

template <NormKind kind, typename T>
void forward_group(const NormShape& shape, const NormForward& arrays, std::size_t i) {
  const std::size_t at = begin_of(shape, i, shape.x_row()), channels = shape.channels;
  const T* x = static_cast<const T*>(arrays.x) + at;
  if (arrays.again) return normalise<kind>(shape, arrays, x, i);
  if (arrays.branch != nullptr) {
    const T* const branch = static_cast<const T*>(arrays.branch) + at;
    T* const sum = static_cast<T*>(arrays.sum) + at;
    simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
      simd::store(sum + c, simd::load(x + c, count) + simd::load(branch + c, count), count);
    });
    x = sum;
  }
  if constexpr (kind == NormKind::layer) {
    const float scale = 1.0f / static_cast<float>(channels);
    const float mean = simd::sum_over(x, channels, [](Floats value) { return value; }) * scale;
    const float squares =
        simd::sum_over(x, channels, [mean](Floats value) { return (value - mean) * (value - mean); });
    arrays.mean[i] = mean;
    arrays.rstd[i] = 1.0f / std::sqrt(squares * scale + shape.epsilon);
  } else {
    const float squares = simd::sum_over(x, channels, [](Floats value) { return value * value; });
    arrays.rstd[i] = 1.0f / std::sqrt(squares / static_cast<float>(channels) + shape.epsilon);
  }
  normalise<kind>(shape, arrays, x, i);
}

/// Calls write(f); f(c, count) is the residual of channels c … of the group at element `at`, or zero if there is none.
template <typename T, typename F>
void with_residual(const void* residual, std::size_t at, const F& write) {
  if (residual == nullptr) return write([](std::size_t, auto) { return Floats{}; });
  const T* const group = static_cast<const T*>(residual) + at;
  write([=](std::size_t c, auto count) { return simd::load(group + c, count); });
}

/// Computes one group of dx; adds to sums[2, C] or, for RMSNorm, sums[C].
template <NormKind kind, typename T>
void backward_group(const NormShape& shape, const NormBackward& arrays, std::size_t i, float* sums) {
  const std::size_t channels = shape.channels, at = begin_of(shape, i, shape.y_row());
  const T* x = static_cast<const T*>(arrays.x) + begin_of(shape, i, shape.x_row());
  const T* dy = static_cast<const T*>(arrays.dy) + at;
  const T* weight = static_cast<const T*>(arrays.weight);
  T* const dx = static_cast<T*>(arrays.dx) + at;
  const float rstd = arrays.rstd[i], mean = kind == NormKind::layer ? arrays.mean[i] : 0.0f;

  Floats total{}, product{};
  simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
    const Floats gradient = simd::load(dy + c, count);
    const Floats normal = (simd::load(x + c, count) - mean) * rstd;
    if constexpr (kind == NormKind::layer) {
      const Floats weighted = gradient * simd::load(weight + c, count);  // zero past the end, like gradient
      total += weighted;
      product += weighted * normal;
      simd::store(sums + c, simd::load(sums + c, count) + gradient * normal, count);
      simd::store(sums + channels + c, simd::load(sums + channels + c, count) + gradient, count);
    } else {
      const Floats along = gradient * normal;
      product += along * simd::load(weight + c, count);
      simd::store(sums + c, simd::load(sums + c, count) + along, count);
    }
  });

  const auto n = static_cast<float>(channels);
  const float mean_total = kind == NormKind::layer ? simd::sum(total) * (1.0f / n) : 0.0f;
  const float mean_product = kind == NormKind::layer ? simd::sum(product) * (1.0f / n) : simd::sum(product) / n;
  with_residual<T>(arrays.residual, at, [&](auto residual) {
    simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
      const Floats normal = (simd::load(x + c, count) - mean) * rstd;
      const Floats weighted = simd::load(dy + c, count) * simd::load(weight + c, count);
      const Floats value = (weighted - mean_total - normal * mean_product) * rstd;
      simd::store(dx + c, value + residual(c, count), count);
    });
  });
}

/// sums[width] = Σ of all groups. add(group, sums) adds one group to the sums of its block. These are stored in
/// workspace[blocks, width] and added in order, so that the number of threads does not change bits.
template <typename F>
void sum_groups(runtime::ComputePool& pool, std::size_t groups, std::size_t width, std::byte* workspace,
                float* sums, const F& add) {
  const std::size_t blocks = runtime::ceil_divide(groups, norm_block_groups);
  auto* const partial = reinterpret_cast<float*>(workspace);
  for_each_row(pool, blocks, [&](std::size_t block) {
    float* const of_block = partial + block * width;
    std::fill(of_block, of_block + width, 0.0f);
    const std::size_t end = std::min(groups, (block + 1) * norm_block_groups);
    for (std::size_t group = block * norm_block_groups; group < end; ++group) add(group, of_block);
  });
  pool.run([&](int thread, int threads) {
    const auto share = runtime::share_of(width, thread, threads, 64);
    simd::for_lanes(share.begin, share.end, [&](std::size_t c, auto count) {
      Floats total{};
      for (std::size_t block = 0; block < blocks; ++block) total += simd::load(partial + block * width + c, count);
      simd::store(sums + c, total, count);
    });
  });
}

/// Calls f(i) for every group, on the pool's threads.
template <typename F>
void for_each_group(runtime::ComputePool& pool, const NormShape& shape, F f) {
  run_pieces(pool, shape.rows, [&](int thread, int threads) {
    const auto share = runtime::share_of(shape.rows * shape.groups, thread, threads);
    for (std::size_t i = share.begin; i < share.end; ++i) f(i);
  });
}

void check(const NormShape& shape, runtime::DType dtype) {
  const char* const name = shape.kind == NormKind::layer ? "layer norm" : "RMS norm";
  expect_kernel(dtype, name);
  const std::size_t row = shape.groups * shape.channels;
  expect(shape.kind == NormKind::rms || (shape.groups == 1 && shape.x_row() == row && shape.y_row() == row),
         "layer norm of {} groups in rows of {} and {}", shape.groups, shape.x_row(), shape.y_row());
  expect(shape.x_row() >= row && shape.y_row() >= row, "{} of {} times {} channels in rows of {} and {}", name,
         shape.groups, shape.channels, shape.x_row(), shape.y_row());
}

/// Cost of reading or writing `arrays` arrays [N, G, C], the values saved per group, and some of the parameters.
runtime::WorkCost cost_of(const NormShape& shape, runtime::DType dtype, std::size_t arrays, std::size_t parameters,
                          std::size_t more = 0) {
  const std::size_t groups = shape.rows * shape.groups, saved = shape.kind == NormKind::layer ? 2 : 1;
  return memory_cost(
      runtime::WorkKind::norm, dtype,
      bytes_of(arrays * groups * shape.channels + parameters, dtype) + saved * groups * sizeof(float) + more);
}

/// Launches work(pool, type, kind), with a value of the type for `dtype` and the kind as integral_constant.
template <typename Work>
void launch(runtime::StreamView stream, const NormShape& shape, runtime::DType dtype, const runtime::WorkCost& cost,
            Work work) {
  launch_typed(stream, dtype, cost, [=](runtime::ComputePool& pool, auto type) {
    if (shape.kind == NormKind::layer) {
      work(pool, type, std::integral_constant<NormKind, NormKind::layer>());
    } else {
      work(pool, type, std::integral_constant<NormKind, NormKind::rms>());
    }
  });
}

}  // namespace

void norm_forward(runtime::StreamView stream, const NormShape& shape, runtime::DType dtype,
                  const NormForward& arrays) {
  check(shape, dtype);
  if (ran_on_gpu<norm_forward_cuda>(stream, shape, dtype, arrays)) return;
  const runtime::WorkCost cost = cost_of(shape, dtype, arrays.branch == nullptr ? 2 : 4, shape.parameters());
  launch(stream, shape, dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T, auto kind) {
    for_each_group(pool, shape, [&](std::size_t i) { forward_group<kind(), T>(shape, arrays, i); });
  });
}

std::size_t norm_workspace_bytes(const NormShape& shape) {
  return runtime::ceil_divide(shape.rows * shape.groups, norm_block_groups) * shape.parameters() * sizeof(float);
}

void norm_backward(runtime::StreamView stream, const NormShape& shape, runtime::DType dtype,
                   const NormBackward& arrays) {
  check(shape, dtype);
  if (ran_on_gpu<norm_backward_cuda>(stream, shape, dtype, arrays)) return;
  const runtime::WorkCost cost =
      cost_of(shape, dtype, arrays.residual == nullptr ? 3 : 4, shape.channels, shape.parameters() * sizeof(float));
  launch(stream, shape, dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T, auto kind) {
    sum_groups(pool, shape.rows * shape.groups, shape.parameters(), arrays.workspace, arrays.sums,
               [&](std::size_t i, float* sums) { backward_group<kind(), T>(shape, arrays, i, sums); });
  });
}

void store_gradient(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                    std::size_t n, bool accumulate) {
  expect_kernel(dtype, "store_gradient");
  if (ran_on_gpu<store_gradient_cuda>(stream, gradient, dtype, sums, n, accumulate)) return;
  const std::size_t bytes = n * sizeof(float) + bytes_of(n, dtype) * (accumulate ? 2 : 1);
  launch_typed(stream, dtype, runtime::elementwise_cost(bytes, dtype), [=]<typename T>(runtime::ComputePool&, T) {
    auto* const to = static_cast<T*>(gradient);
    simd::for_lanes(0, n, [&](std::size_t i, auto count) {
      const Floats value = simd::load(sums + i, count);
      simd::store(to + i, accumulate ? simd::load(to + i, count) + value : value, count);
    });
  });
}

}  // namespace ranvier::models
