#include "models/ops/pooling.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

#include <array>
#include <cmath>

namespace ranvier::models {
namespace {

using simd::Floats;

/// One pooled pixel.
template <typename T>
void pool_patch(const PatchShape& shape, T* y, std::uint8_t* places, const T* x, std::size_t row) {
  const std::size_t C = shape.channels;
  const std::size_t q = row % shape.out_width(), p = row / shape.out_width() % shape.out_height();
  const T* const image = x + row / (shape.out_width() * shape.out_height()) * shape.height * shape.width * C;
  bool any = false;
  for (std::size_t i = 0; i < shape.kernel; ++i) {
    for (std::size_t j = 0; j < shape.kernel; ++j) {
      // A negative coordinate wraps around and is too large.
      const std::size_t h = p * shape.stride + i - shape.padding, w = q * shape.stride + j - shape.padding;
      if (h >= shape.height || w >= shape.width) continue;
      const T* const from = image + (h * shape.width + w) * C;
      for (std::size_t c = 0; c < C; ++c) {
        const float value = runtime::to_float(from[c]), best = runtime::to_float(y[row * C + c]);
        if (any && !(value > best) && !(std::isnan(value) && !std::isnan(best))) continue;
        y[row * C + c] = from[c];
        places[row * C + c] = static_cast<std::uint8_t>(i * shape.kernel + j);
      }
      any = true;
    }
  }
}

constexpr const char* max_pool = "a pool of the greatest values";
constexpr const char* mean_pool = "a pool of means";

/// Cost of reading or writing the images, the pooled images and their places.
runtime::WorkCost cost_of(const PatchShape& shape, runtime::DType dtype) {
  const std::size_t images = shape.samples * shape.height * shape.width, pooled = shape.rows();
  return memory_cost(runtime::WorkKind::patches, dtype,
                     (bytes_of(images + pooled, dtype) + pooled) * shape.channels);
}

/// Cost of reading or writing the images and their means.
runtime::WorkCost cost_of(const MeanPoolShape& shape, runtime::DType dtype) {
  return memory_cost(runtime::WorkKind::patches, dtype,
                     bytes_of(shape.samples * (shape.pixels + 1) * shape.channels, dtype));
}

}  // namespace

void max_pool_forward(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* y,
                      std::uint8_t* places, const void* x) {
  expect_kernel(dtype, max_pool);
  expect_patches(shape, max_pool);
  if (ran_on_gpu<max_pool_forward_cuda>(stream, shape, dtype, y, places, x)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype), [=]<typename T>(runtime::ComputePool& pool, T) {
    for_each_row(pool, shape.rows(), [&](std::size_t row) {
      pool_patch(shape, static_cast<T*>(y), places, static_cast<const T*>(x), row);
    });
  });
}

void max_pool_backward(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* dx,
                       const void* dy, const std::uint8_t* places) {
  expect_kernel(dtype, max_pool);
  expect_patches(shape, max_pool);
  if (ran_on_gpu<max_pool_backward_cuda>(stream, shape, dtype, dx, dy, places)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype), [=]<typename T>(runtime::ComputePool& pool, T) {
    const std::size_t P = shape.out_height(), Q = shape.out_width(), C = shape.channels;
    for_each_row(pool, shape.samples * shape.height * shape.width, [&](std::size_t pixel) {
      std::array<std::size_t, PatchShape::max_taps> rows, taps;
      std::size_t count = 0;
      shape.for_covering(pixel, P, Q, [&](std::size_t row, std::size_t tap) {
        rows[count] = row;
        taps[count++] = tap;
      });
      for (std::size_t c = 0; c < C; ++c) {
        float total = 0;
        for (std::size_t k = 0; k < count; ++k) {
          const std::size_t from = rows[k] * C + c;
          if (places[from] == taps[k]) total += runtime::to_float(static_cast<const T*>(dy)[from]);
        }
        static_cast<T*>(dx)[pixel * C + c] = runtime::from_float<T>(total);
      }
    });
  });
}

void mean_pool_forward(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* y,
                       const void* x) {
  expect_kernel(dtype, mean_pool);
  if (ran_on_gpu<mean_pool_forward_cuda>(stream, shape, dtype, y, x)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype), [=]<typename T>(runtime::ComputePool& pool, T) {
    const float part = 1.0f / static_cast<float>(shape.pixels);
    const std::size_t C = shape.channels;
    for_each_row(pool, shape.samples, [&](std::size_t sample) {
      const T* const image = static_cast<const T*>(x) + sample * shape.pixels * C;
      simd::for_lanes(0, C, [&](std::size_t c, auto count) {
        Floats total{};
        for (std::size_t pixel = 0; pixel < shape.pixels; ++pixel)
          total += simd::load(image + pixel * C + c, count);
        simd::store(static_cast<T*>(y) + sample * C + c, total * part, count);
      });
    });
  });
}

void mean_pool_backward(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* dx,
                        const void* dy) {
  expect_kernel(dtype, mean_pool);
  if (ran_on_gpu<mean_pool_backward_cuda>(stream, shape, dtype, dx, dy)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype), [=]<typename T>(runtime::ComputePool& pool, T) {
    const float part = 1.0f / static_cast<float>(shape.pixels);
    const std::size_t C = shape.channels;
    for_each_row(pool, shape.samples * shape.pixels, [&](std::size_t row) {
      const T* const from = static_cast<const T*>(dy) + row / shape.pixels * C;
      simd::for_lanes(0, C, [&](std::size_t c, auto count) {
        simd::store(static_cast<T*>(dx) + row * C + c, simd::load(from + c, count) * part, count);
      });
    });
  });
}

}  // namespace ranvier::models
