#include "models/ops/patches.hpp"

#include "runtime/compute_pool.hpp"

#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

namespace ranvier::models {
namespace {

template <typename T>
using Taps = std::array<const T*, PatchShape::most_kernel * PatchShape::most_kernel>;

/// Calls f with the number of taps, as a constant where it is that of a common kernel.
template <typename F>
void with_taps(std::size_t taps, F&& f) {
  if (taps == 9) return f(std::integral_constant<std::size_t, 9>());
  f(taps);
}

/// The pixels of a patch's taps; `outside` where there are none.
template <typename T>
Taps<T> taps_of(const PatchShape& shape, const T* x, std::size_t row, const T* outside) {
  const std::size_t q = row % shape.out_width(), p = row / shape.out_width() % shape.out_height();
  const T* const image =
      x + row / (shape.out_width() * shape.out_height()) * shape.height * shape.width * shape.channels;
  Taps<T> taps;
  for (std::size_t i = 0; i < shape.kernel; ++i) {
    for (std::size_t j = 0; j < shape.kernel; ++j) {
      // One too small to be there wraps, and is too large.
      const std::size_t h = p * shape.stride + i - shape.padding, w = q * shape.stride + j - shape.padding;
      const bool inside = h < shape.height && w < shape.width;
      taps[i * shape.kernel + j] = inside ? image + (h * shape.width + w) * shape.channels : outside;
    }
  }
  return taps;
}

/// Of the patches that have a pixel at `at`: calls f(patch, tap) along one axis, in the order of patches.
template <typename F>
void for_covering(const PatchShape& shape, std::size_t at, std::size_t patches, const F& f) {
  const std::size_t last = (at + shape.padding) / shape.stride;
  const std::size_t reach = at + shape.padding;
  const std::size_t first = reach < shape.kernel ? 0 : (reach - shape.kernel) / shape.stride + 1;
  for (std::size_t p = first; p <= last && p < patches; ++p) f(p, reach - p * shape.stride);
}

}  // namespace

void gather_patches_cpu(runtime::ComputePool& pool, const PatchShape& shape, runtime::DType dtype, void* patches,
                        const void* x) {
  runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    pool.run([&](int thread, int threads) {
      const std::vector<T> zeros(shape.channels);
      const auto share = runtime::share_of(shape.rows(), thread, threads);
      with_taps(shape.taps(), [&](auto count) {
        for (std::size_t row = share.begin; row < share.end; ++row) {
          const Taps<T> taps = taps_of(shape, static_cast<const T*>(x), row, zeros.data());
          T* to = static_cast<T*>(patches) + row * shape.columns();
          if (count == 1) {
            std::memcpy(static_cast<void*>(to), taps[0], shape.channels * sizeof(T));
            continue;
          }
          for (std::size_t c = 0; c < shape.channels; ++c)
            for (std::size_t t = 0; t < count; ++t) *to++ = taps[t][c];
        }
      });
    });
  });
}

void add_patches_cpu(runtime::ComputePool& pool, const PatchShape& shape, runtime::DType dtype, void* x,
                     const float* patches) {
  runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    pool.run([&](int thread, int threads) {
      const std::size_t P = shape.out_height(), Q = shape.out_width(), taps = shape.taps();
      const auto share = runtime::share_of(shape.samples * shape.height * shape.width, thread, threads);
      Taps<float> covering;
      for (std::size_t pixel = share.begin; pixel < share.end; ++pixel) {
        const std::size_t w = pixel % shape.width, h = pixel / shape.width % shape.height;
        const std::size_t sample = pixel / shape.width / shape.height;
        std::size_t count = 0;
        for_covering(shape, h, P, [&](std::size_t p, std::size_t i) {
          for_covering(shape, w, Q, [&](std::size_t q, std::size_t j) {
            covering[count++] = patches + ((sample * P + p) * Q + q) * shape.columns() + i * shape.kernel + j;
          });
        });
        T* const to = static_cast<T*>(x) + pixel * shape.channels;
        for (std::size_t c = 0; c < shape.channels; ++c) {
          float total = 0;
          for (std::size_t k = 0; k < count; ++k) total += covering[k][c * taps];
          to[c] = runtime::from_float<T>(total);
        }
      }
    });
  });
}

}  // namespace ranvier::models
