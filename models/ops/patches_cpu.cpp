#include "models/ops/patches.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/scratch.hpp"
#include "models/ops/transpose.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace ranvier::models {
namespace {

template <typename T>
using Taps = std::array<const T*, PatchShape::max_taps>;

/// Pixels of a patch's taps; `outside` for taps outside of the image.
template <typename T>
Taps<T> taps_of(const PatchShape& shape, const T* x, std::size_t row, const T* outside) {
  const std::size_t q = row % shape.out_width(), p = row / shape.out_width() % shape.out_height();
  const T* const image =
      x + row / (shape.out_width() * shape.out_height()) * shape.height * shape.width * shape.channels;
  Taps<T> taps;
  for (std::size_t i = 0; i < shape.kernel; ++i) {
    for (std::size_t j = 0; j < shape.kernel; ++j) {
      // A negative coordinate wraps around and is too large.
      const std::size_t h = p * shape.stride + i - shape.padding, w = q * shape.stride + j - shape.padding;
      const bool inside = h < shape.height && w < shape.width;
      taps[i * shape.kernel + j] = inside ? image + (h * shape.width + w) * shape.channels : outside;
    }
  }
  return taps;
}

/// Squares of 16 channels and 16 taps, of which 9 are used: transposed in registers.
constexpr bool has_squares = simd::lanes == 16;

/// to[C, 9] = from[9][C]
template <typename T>
void interleave(T* to, const Taps<T>& from, std::size_t channels) {
  constexpr std::size_t taps = 9;
  std::size_t c = 0;
  if constexpr (has_squares) {
    using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
    using Block = detail::Block<Word>;
    for (; c + Block::width <= channels; c += Block::width) {
      Block block{};
      for (std::size_t t = 0; t < taps; ++t) std::memcpy(&block.rows[t], from[t] + c, sizeof(block.rows[t]));
      detail::transpose(block);
      const auto put = [&](std::size_t channel, std::size_t count) {
        const auto* const row = reinterpret_cast<const Word*>(&block.rows[channel % simd::lanes]);
        std::memcpy(static_cast<void*>(to + (c + channel) * taps), row + channel / simd::lanes * simd::lanes,
                    count * sizeof(Word));
      };
      // The next channel overwrites the elements after a channel's taps.
      for (std::size_t channel = 0; channel + 1 < Block::width; ++channel) put(channel, simd::lanes);
      put(Block::width - 1, taps);
    }
  }
  for (; c < channels; ++c)
    for (std::size_t t = 0; t < taps; ++t) to[c * taps + t] = from[t][c];
}

/// to[t][C] += from[C, 9] for each tap inside the image. `more`: at least as many numbers follow those.
void add_taps(const std::array<float*, 9>& to, const float* from, std::size_t channels, bool more) {
  constexpr std::size_t taps = 9;
  std::size_t c = 0;
  if constexpr (has_squares) {
    using Block = detail::Block<std::uint32_t>;
    // A row of a square also contains numbers of the next channel.
    for (const std::size_t end = more ? channels : channels - 1; c + Block::width <= end; c += Block::width) {
      Block block;
      for (std::size_t r = 0; r < simd::lanes; ++r)
        std::memcpy(&block.rows[r], from + (c + r) * taps, sizeof(block.rows[r]));
      detail::transpose(block);
      for (std::size_t t = 0; t < taps; ++t)
        if (to[t] != nullptr)
          simd::store(to[t] + c, simd::load(to[t] + c) + std::bit_cast<simd::Floats>(block.rows[t]));
    }
  }
  for (; c < channels; ++c)
    for (std::size_t t = 0; t < taps; ++t)
      if (to[t] != nullptr) to[t][c] += from[c * taps + t];
}

/// sums[rows, W, C] of an image (initially zero) += its 3 × 3 patches, one after another. Each patch is read once;
/// pixel by pixel, it would be read once per tap.
void add_patches_of_nine(const PatchShape& shape, float* sums, const float* patches, std::size_t sample,
                         const runtime::Share& rows) {
  const std::size_t P = shape.out_height(), Q = shape.out_width(), C = shape.channels;
  const std::size_t first = shape.first_patch(rows.begin + shape.padding);
  const std::size_t last = std::min(P, (rows.end - 1 + shape.padding) / shape.stride + 1);
  for (std::size_t p = first; p < last; ++p) {
    for (std::size_t q = 0; q < Q; ++q) {
      std::array<float*, 9> to{};
      for (std::size_t t = 0; t < to.size(); ++t) {
        // A negative coordinate wraps around and is too large.
        const std::size_t h = p * shape.stride + t / 3 - shape.padding,
                          w = q * shape.stride + t % 3 - shape.padding;
        if (h >= rows.begin && h < rows.end && w < shape.width)
          to[t] = sums + ((h - rows.begin) * shape.width + w) * C;
      }
      const std::size_t row = (sample * P + p) * Q + q;
      add_taps(to, patches + row * shape.columns(), C, row + 1 < shape.rows());
    }
  }
}

/// The same for images of T.
template <typename T>
void add_patches_of_nine(runtime::ComputePool& pool, const PatchShape& shape, T* x, const float* patches) {
  pool.run([&](int thread, int threads) {
    static thread_local Scratch memory;
    const std::size_t H = shape.height, row_elements = shape.width * shape.channels;
    const auto share = runtime::share_of(shape.samples * H, thread, threads);
    for (std::size_t row = share.begin; row < share.end;) {
      const std::size_t sample = row / H, end = std::min(share.end, (sample + 1) * H);
      const std::size_t n = (end - row) * row_elements;
      T* const to = x + row * row_elements;
      float* sums = nullptr;
      if constexpr (std::is_same_v<T, float>) {
        sums = to;
      } else {
        sums = memory.get<float>(n);
      }
      std::fill(sums, sums + n, 0.0f);
      add_patches_of_nine(shape, sums, patches, sample, {row - sample * H, end - sample * H});
      if constexpr (!std::is_same_v<T, float>) simd::convert(to, sums, n);
      row = end;
    }
  });
}

/// Cost of reading or writing the images, and their patches in type `patches`.
runtime::WorkCost cost_of(const PatchShape& shape, runtime::DType dtype, runtime::DType patches) {
  const std::size_t images = shape.samples * shape.height * shape.width * shape.channels;
  return memory_cost(runtime::WorkKind::patches, dtype,
                     bytes_of(images, dtype) + bytes_of(shape.rows() * shape.columns(), patches));
}

}  // namespace

void expect_patches(const PatchShape& shape, const char* operation) {
  const std::size_t K = shape.kernel;
  expect(K >= 1 && K <= PatchShape::max_kernel && shape.stride >= 1 && shape.padding < K &&
             shape.height + 2 * shape.padding >= K && shape.width + 2 * shape.padding >= K,
         "{} of {} × {} pixels in patches of {}, {} apart, with a margin of {}", operation, shape.height,
         shape.width, K, shape.stride, shape.padding);
}

void gather_patches(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* patches,
                    const void* x) {
  expect_kernel(dtype, "patches");
  expect_patches(shape, "patches");
  if (ran_on_gpu<gather_patches_cuda>(stream, shape, dtype, patches, x)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype, dtype), [=]<typename T>(runtime::ComputePool& pool, T) {
    pool.run([&](int thread, int threads) {
      const std::vector<T> zeros(shape.channels);
      const auto share = runtime::share_of(shape.rows(), thread, threads);
      for (std::size_t row = share.begin; row < share.end; ++row) {
        const Taps<T> taps = taps_of(shape, static_cast<const T*>(x), row, zeros.data());
        T* to = static_cast<T*>(patches) + row * shape.columns();
        if (shape.taps() == 1) {
          std::memcpy(static_cast<void*>(to), taps[0], shape.channels * sizeof(T));
        } else if (shape.taps() == 9) {
          interleave(to, taps, shape.channels);
        } else {
          for (std::size_t c = 0; c < shape.channels; ++c)
            for (std::size_t t = 0; t < shape.taps(); ++t) *to++ = taps[t][c];
        }
      }
    });
  });
}

void add_patches(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* x,
                 const float* patches) {
  expect_kernel(dtype, "sums of patches");
  expect_patches(shape, "sums of patches");
  if (ran_on_gpu<add_patches_cuda>(stream, shape, dtype, x, patches)) return;
  launch_typed(stream, dtype, cost_of(shape, dtype, runtime::DType::f32),
               [=]<typename T>(runtime::ComputePool& pool, T) {
                 if (has_squares && shape.taps() == 9)
                   return add_patches_of_nine(pool, shape, static_cast<T*>(x), patches);
                 const std::size_t P = shape.out_height(), Q = shape.out_width(), taps = shape.taps();
                 for_each_row(pool, shape.samples * shape.height * shape.width, [&](std::size_t pixel) {
                   Taps<float> covering;
                   std::size_t count = 0;
                   shape.for_covering(pixel, P, Q, [&](std::size_t row, std::size_t tap) {
                     covering[count++] = patches + row * shape.columns() + tap;
                   });
                   T* const to = static_cast<T*>(x) + pixel * shape.channels;
                   for (std::size_t c = 0; c < shape.channels; ++c) {
                     float total = 0;
                     for (std::size_t k = 0; k < count; ++k) total += covering[k][c * taps];
                     to[c] = runtime::from_float<T>(total);
                   }
                 });
               });
}

void read_pixels(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                 void* to, const std::uint8_t* from, const PixelScale& scale) {
  expect_kernel(dtype, "pixels");
  const std::size_t values = samples * pixels * colours;
  if (ran_on_gpu<read_pixels_cuda>(stream, samples, pixels, dtype, to, from, scale)) return;
  const runtime::WorkCost cost = memory_cost(runtime::WorkKind::patches, dtype, values + bytes_of(values, dtype));
  launch_typed(stream, dtype, cost, [=]<typename T>(runtime::ComputePool& pool, T) {
    for_each_row(pool, samples * pixels, [&](std::size_t at) {
      const std::uint8_t* const image = from + at / pixels * colours * pixels + at % pixels;
      for (std::size_t k = 0; k < colours; ++k) {
        const float value = static_cast<float>(image[k * pixels]) / 255.0f;
        static_cast<T*>(to)[at * colours + k] =
            runtime::from_float<T>((value - scale.mean[k]) / scale.deviation[k]);
      }
    });
  });
}

}  // namespace ranvier::models
