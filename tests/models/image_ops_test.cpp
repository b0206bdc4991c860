#include "models/ops/patches.hpp"
#include "models/ops/pixels.hpp"
#include "models/ops/pooling.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr std::array dtypes{DType::f32, DType::bf16, DType::f16};

std::vector<PatchShape> shapes() {
  return {{.samples = 2, .height = 5, .width = 6, .channels = 3, .kernel = 3, .stride = 1, .padding = 1},
          {.samples = 3, .height = 7, .width = 4, .channels = 5, .kernel = 3, .stride = 2, .padding = 1},
          {.samples = 1, .height = 9, .width = 8, .channels = 3, .kernel = 7, .stride = 2, .padding = 3},
          {.samples = 2, .height = 5, .width = 5, .channels = 19, .kernel = 1, .stride = 2, .padding = 0},
          {.samples = 1, .height = 1, .width = 1, .channels = 2, .kernel = 3, .stride = 2, .padding = 1},
          {.samples = 1, .height = 4, .width = 3, .channels = 67, .kernel = 3, .stride = 1, .padding = 1},
          {.samples = 2, .height = 3, .width = 3, .channels = 32, .kernel = 3, .stride = 2, .padding = 1}};
}

/// Calls f(row of patches, tap, pixel) for all inside their image, by their definition.
template <typename F>
void for_taps(const PatchShape& shape, const F& f) {
  const auto inside = [](std::ptrdiff_t at, std::size_t end) {
    return at >= 0 && at < static_cast<std::ptrdiff_t>(end);
  };
  std::size_t row = 0;
  for (std::size_t b = 0; b < shape.samples; ++b)
    for (std::size_t p = 0; p < shape.out_height(); ++p)
      for (std::size_t q = 0; q < shape.out_width(); ++q, ++row)
        for (std::size_t tap = 0; tap < shape.taps(); ++tap) {
          const auto h = static_cast<std::ptrdiff_t>(p * shape.stride + tap / shape.kernel) -
                         static_cast<std::ptrdiff_t>(shape.padding);
          const auto w = static_cast<std::ptrdiff_t>(q * shape.stride + tap % shape.kernel) -
                         static_cast<std::ptrdiff_t>(shape.padding);
          if (inside(h, shape.height) && inside(w, shape.width))
            f(row, tap,
              (b * shape.height + static_cast<std::size_t>(h)) * shape.width + static_cast<std::size_t>(w));
        }
}

std::size_t image_elements(const PatchShape& shape) {
  return shape.samples * shape.height * shape.width * shape.channels;
}

}  // namespace

TEST_CASE("patches hold their pixels and zeros outside, and their sums are added to the pixels") {
  for (const PatchShape& shape : shapes()) {
    for (const DType dtype : dtypes) {
      CAPTURE(to_string(dtype));
      CAPTURE(shape.kernel);
      CAPTURE(shape.stride);
      const std::size_t C = shape.channels, columns = shape.columns();
      const TypedArray x(dtype, image_elements(shape), 51), values(DType::f32, shape.rows() * columns, 52);
      std::vector<double> patches(shape.rows() * columns), sums(x.size());
      for_taps(shape, [&](std::size_t row, std::size_t tap, std::size_t pixel) {
        for (std::size_t c = 0; c < C; ++c) {
          patches[row * columns + c * shape.taps() + tap] = x[pixel * C + c];
          sums[pixel * C + c] += values[row * columns + c * shape.taps() + tap];
        }
      });
      std::optional<TypedArray> first;
      on_every_device([&](runtime::StreamView stream) {
        TypedArray gathered(dtype, patches.size(), 53), added(dtype, x.size(), 54);
        DeviceCopies at(stream);
        gather_patches(stream, shape, dtype, at(gathered), at(x));
        add_patches(stream, shape, dtype, at(added), reinterpret_cast<const float*>(at(values)));
        at.fetch();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < patches.size(); ++i) wrong += gathered[i] != patches[i];
        for (std::size_t i = 0; i < sums.size(); ++i)
          wrong += !(std::abs(added[i] - sums[i]) <= std::abs(sums[i]) * 1.01 * half_unit(dtype) + 2e-6);
        CHECK(wrong == 0);
        if (first) CHECK(same_bits(added, *first));
        first = added;
      });
    }
  }
}

TEST_CASE("the maximum of a patch is pooled, the first of equal ones, and its gradient goes to that pixel") {
  for (const PatchShape& shape : shapes()) {
    for (const DType dtype : dtypes) {
      CAPTURE(to_string(dtype));
      CAPTURE(shape.kernel);
      const std::size_t C = shape.channels;
      TypedArray x(dtype, image_elements(shape), 61);
      for (std::size_t i = 0; i < x.size(); ++i)
        x.set(i, std::round(2 * x[i]) - 3);  // often equal, mostly negative
      const TypedArray dy(dtype, shape.rows() * C, 62);
      const double lowest = -std::numeric_limits<double>::infinity();
      std::vector<double> greatest(dy.size(), lowest), gradient(x.size());
      std::vector<std::size_t> pixels(dy.size());
      for_taps(shape, [&](std::size_t row, std::size_t, std::size_t pixel) {
        for (std::size_t c = 0; c < C; ++c) {
          if (x[pixel * C + c] <= greatest[row * C + c]) continue;
          greatest[row * C + c] = x[pixel * C + c];
          pixels[row * C + c] = pixel;
        }
      });
      for (std::size_t i = 0; i < dy.size(); ++i)
        if (greatest[i] != lowest) gradient[pixels[i] * C + i % C] += dy[i];
      on_every_device([&](runtime::StreamView stream) {
        TypedArray y(dtype, dy.size()), dx(dtype, x.size(), 63);
        std::vector<std::uint8_t> places(dy.size());
        DeviceCopies at(stream);
        max_pool_forward(stream, shape, dtype, at(y), at(places), at(x));
        max_pool_backward(stream, shape, dtype, at(dx), at(dy), at(places));
        at.fetch();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < y.size(); ++i) wrong += y[i] != greatest[i];
        for (std::size_t i = 0; i < dx.size(); ++i)
          wrong += !(std::abs(dx[i] - gradient[i]) <= std::abs(gradient[i]) * 1.01 * half_unit(dtype) + 2e-6);
        CHECK(wrong == 0);
      });
    }
  }
}

TEST_CASE("a NaN is the maximum of every patch") {
  const PatchShape shape{
      .samples = 1, .height = 2, .width = 2, .channels = 1, .kernel = 3, .stride = 1, .padding = 1};
  for (std::size_t bad = 0; bad < 4; ++bad) {
    TypedArray x(DType::f32, 4, 64);
    x.set(bad, std::numeric_limits<double>::quiet_NaN());
    on_every_device([&](runtime::StreamView stream) {
      TypedArray y(DType::f32, 4);
      std::vector<std::uint8_t> places(4);
      DeviceCopies at(stream);
      max_pool_forward(stream, shape, DType::f32, at(y), at(places), at(x));
      at.fetch();
      for (std::size_t i = 0; i < 4; ++i) CHECK(std::isnan(y[i]));
    });
  }
}

TEST_CASE("the mean of an image is over its pixels, and they share its gradient equally") {
  for (const DType dtype : dtypes) {
    const MeanPoolShape shape{.samples = 3, .pixels = 7, .channels = 21};
    const TypedArray x(dtype, 3 * 7 * 21, 71), dy(dtype, 3 * 21, 72);
    on_every_device([&](runtime::StreamView stream) {
      TypedArray y(dtype, dy.size()), dx(dtype, x.size());
      DeviceCopies at(stream);
      mean_pool_forward(stream, shape, dtype, at(y), at(x));
      mean_pool_backward(stream, shape, dtype, at(dx), at(dy));
      at.fetch();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        double mean = 0;
        for (std::size_t pixel = 0; pixel < 7; ++pixel) mean += x[(i / 21 * 7 + pixel) * 21 + i % 21] / 7;
        wrong += !(std::abs(y[i] - mean) <= std::abs(mean) * 1.01 * half_unit(dtype) + 1e-6);
      }
      for (std::size_t i = 0; i < dx.size(); ++i) {
        const double share = dy[i / 21 / 7 * 21 + i % 21] / 7;
        wrong += !(std::abs(dx[i] - share) <= std::abs(share) * 1.01 * half_unit(dtype) + 1e-7);
      }
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("bytes of planes become scaled pixels") {
  const PixelScale scale{.mean = {0.5f, 0.25f, 0}, .deviation = {1, 0.5f, 2}};
  std::vector<std::uint8_t> bytes(2 * 3 * 35);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(37 * i + i / 7);
  for (const DType dtype : dtypes) {
    on_every_device([&](runtime::StreamView stream) {
      TypedArray y(dtype, bytes.size());
      DeviceCopies at(stream);
      read_pixels(stream, 2, 35, dtype, at(y), at(std::as_const(bytes)), scale);
      at.fetch();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t k = i % 3, pixel = i / 3 % 35, sample = i / 3 / 35;
        const double exact =
            (bytes[(sample * 3 + k) * 35 + pixel] / 255.0 - double{scale.mean[k]}) / double{scale.deviation[k]};
        wrong += !(std::abs(y[i] - exact) <= std::abs(exact) * 1.01 * half_unit(dtype) + 1e-6);
      }
      CHECK(wrong == 0);
    });
  }
}
