// Operators compared with their definitions in double: a row per operator and shape, in every dtype on every device.
#include "models/ops/activation.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/norm.hpp"
#include "models/ops/patches.hpp"
#include "models/ops/pooling.hpp"
#include "models/ops/rotary.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/test.hpp"

#include <fmt/core.h>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;
using runtime::StreamView;

namespace {

double gelu(double x, GeluForm form) {
  if (form == GeluForm::erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

template <typename Function>
double slope(Function function, double x) {
  return (function(x + 1e-5) - function(x - 1e-5)) / 2e-5;
}

std::string name_of(GeluForm form) { return form == GeluForm::erf ? "GELU, BERT's" : "GELU, GPT-2's"; }

/// Also that the gradient is the same whether GELU's value is computed again or not.
Operator gelu_row(DType dtype, GeluForm form, std::size_t n) {
  const TypedArray x(dtype, n, 21, 2.5), dy(dtype, n, 22);
  const double unit = half_unit(dtype);
  const double relative = unit + (dtype == DType::f32 ? (on_gpu_here() ? 1.2e-6 : 6e-7) : 5e-6);
  return {.name = name_of(form),
          .outputs = {{"y", TypedArray(dtype, n),
                       each([=](std::size_t i) { return within(gelu(x[i], form), relative, 1e-6 * unit + 3e-8); })},
                      {"y again", x, nullptr, 0},
                      {"d", dy, each([=](std::size_t i) {
                         const double exact = dy[i] * slope([&](double at) { return gelu(at, form); }, x[i]);
                         return within(exact, relative, std::abs(dy[i]) * (relative - unit + 1e-6) + 3e-8);
                       })},
                      {"d alone", dy, nullptr, 2}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            gelu_forward(stream, dtype, at(out[0]), at(x), n, form);
            gelu_backward(stream, dtype, at(out[2]), at(out[1]), at(out[1]), n, form);
            gelu_backward(stream, dtype, at(out[3]), at(x), nullptr, n, form);
          }};
}

/// Values far left of zero, where GELU is small: its relative error in fp32.
Operator precise_gelu_row(GeluForm form) {
  std::vector<float> values;
  for (float value = -6.0f; value <= 6.0f; value += 1e-3f) values.push_back(value);
  const TypedArray x(values);
  return {.name = name_of(form) + ", far left of zero",
          .outputs = {{"y", x, each([=](std::size_t i) {
                         // e^(-x²/2) and e^-2u turn a rounding of 2u = 15 into 15 units of the result.
                         if (form == GeluForm::erf) return within(gelu(x[i], form), 4e-6);
                         // The formula itself loses digits in 1 + tanh: use the sigmoid in long double.
                         const long double v = x[i];
                         const long double u =
                             std::sqrt(2 / std::numbers::pi_v<long double>) * (v + 0.044715L * v * v * v);
                         return within(static_cast<double>(v / (1 + std::exp(-2 * u))), 4e-6);
                       })}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            gelu_forward(stream, DType::f32, at(out[0]), at(x), x.size(), form);
          }};
}

Operator swiglu_row(DType dtype, std::size_t F) {
  const std::size_t N = 17;
  const TypedArray x(dtype, N * 2 * F, 21, 2.5), dy(dtype, N * F, 22);
  const double relative = half_unit(dtype) + (dtype == DType::f32 ? 1.5e-6 : 6e-6);
  return {.name = fmt::format("SwiGLU, {} channels", F),
          .outputs = {{"y", TypedArray(dtype, N * F), each([=](std::size_t i) {
                         const std::size_t gate = i / F * 2 * F + i % F;
                         return within(silu(x[gate]) * x[gate + F], relative, 3e-8);
                       })},
                      {"y again", dy, nullptr, 0},
                      {"d", x, each([=](std::size_t i) {
                         const std::size_t row = i / (2 * F), c = i % F, gate = row * 2 * F + c;
                         const double d = dy[row * F + c];
                         if (i != gate) return within(d * silu(x[gate]), relative, 3e-8);
                         const double scale = d * x[gate + F];
                         return within(scale * slope(silu, x[gate]), relative, std::abs(scale) * 2e-6 + 3e-8);
                       })},
                      {"d alone", x, nullptr, 2}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            swiglu_forward(stream, dtype, at(out[0]), at(x), N, F);
            swiglu_backward(stream, dtype, at(out[1]), at(out[2]), at(out[1]), N, F);
            swiglu_backward(stream, dtype, at(dy), at(out[3]), nullptr, N, F);
          }};
}

Operator tanh_row(DType dtype) {
  const std::size_t n = 8999;
  const TypedArray x(dtype, n, 21, 2.5), dy(dtype, n, 22);
  const double unit = half_unit(dtype) + 2e-6;
  return {
      .name = "tanh",
      .outputs = {{"y", TypedArray(dtype, n), each([=](std::size_t i) { return within(std::tanh(x[i]), unit); })},
                  {"d", dy,
                   [=](const Outputs& out, std::size_t i) {  // with the stored y
                     return within(dy[i] * (1 - out[0][i] * out[0][i]), unit, 1e-7 * std::abs(dy[i]) + 6e-8);
                   }}},
      .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
        tanh_forward(stream, dtype, at(out[0]), at(x), n);
        tanh_backward(stream, dtype, at(out[1]), at(std::as_const(out[0])), n);
      }};
}

Bound near(double value) { return within(value, 1e-5, 1e-5); }

Operator extreme_gelu_row(GeluForm form) {
  return {.name = name_of(form) + ", extreme values",
          .outputs = {{"y", TypedArray({-1e4f, -100, -20, 0, 20, 100, 1e4f, NAN}),
                       given({near(0), near(0), near(0), {0}, near(20), near(100), {1e4}, {NAN}})},
                      {"d", TypedArray(std::vector<float>(8, 1)),
                       given({near(0), near(0), near(0), near(0.5), near(1), near(1), near(1), {NAN}})}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            gelu_backward(stream, DType::f32, at(out[1]), at(out[0]), at(out[0]), 8, form);
          }};
}

Operator extreme_swiglu_row() {
  std::vector<float> x;
  for (const float gate : {-1e4f, -100.0f, 0.0f, 100.0f, 1e4f, NAN}) x.insert(x.end(), {gate, 2.0f});
  const Bound zero = near(0), nan{NAN};
  const std::vector<Bound> y{zero, zero, zero, near(200), {2e4}, nan};
  const std::vector<Bound> d{zero, zero, zero, zero, near(1), zero, near(2), near(100), near(2), {1e4}, nan, nan};
  return {.name = "SwiGLU, extreme gates",
          .outputs = {{"y", TypedArray(std::vector<float>(6, 1)), given(y)}, {"d", TypedArray(x), given(d)}},
          .call = [](StreamView stream, DeviceCopies& at, Outputs& out) {
            swiglu_backward(stream, DType::f32, at(out[0]), at(out[1]), at(out[0]), 6, 1);
          }};
}

/// In place, and for empty arrays.
Operator extreme_tanh_row() {
  return {.name = "tanh, extreme values",
          .outputs = {{"y", TypedArray({-1e4f, -20, 0, 20, 1e4f, NAN}),
                       given({{-1}, near(-1), {0}, near(1), {1}, {NAN}})}},
          .call = [](StreamView stream, DeviceCopies& at, Outputs& out) {
            tanh_forward(stream, DType::f32, at(out[0]), at(out[0]), 6);
            tanh_forward(stream, DType::f32, nullptr, nullptr, 0);
            tanh_backward(stream, DType::f32, nullptr, nullptr, 0);
          }};
}

/// `numbered`: positions from an array; otherwise 4, 5, …
Operator rotary_row(DType dtype, int D, bool numbered) {
  constexpr int B = 3, T = 11, G = 5;
  std::vector<std::int32_t> positions;
  for (int i = 0; i < B * T; ++i) positions.push_back(numbered ? i * 7 % 5 * 3001 : 4 + i % T);
  const auto channels = static_cast<std::size_t>(D), row = (G + 2) * channels;
  const auto frequencies = rotary_frequencies(D, 500.0);
  const TypedArray x(dtype, B * T * row, 51);
  const double unit = half_unit(dtype);
  return {.name = fmt::format("rotation of {} channels{}", D, numbered ? ", numbered" : ""),
          .outputs = {{"y", x, each([=](std::size_t i) -> Bound {
                         if (i % row / channels >= G) return {x[i]};  // values
                         const std::size_t c = i % channels, half = channels / 2;
                         const float frequency = frequencies.of_pair[c % half];
                         const double angle =
                             static_cast<double>(static_cast<float>(positions[i / row]) * frequency);
                         return within(c < half ? x[i] * std::cos(angle) - x[i + half] * std::sin(angle)
                                                : x[i] * std::cos(angle) + x[i - half] * std::sin(angle),
                                       unit * 1.01, 2e-6);
                       })},
                      {"rotated back", x, given(x, 0, 8 * unit * 5 + 1e-6)}},
          .call =
              [=](StreamView stream, DeviceCopies& at, Outputs& out) {
                const RotaryShape shape{B, T, G, row};
                rotary(stream, shape, dtype, at(out[0]), frequencies, Rotation::forward,
                       numbered ? at(positions) : nullptr, 4);
                at.fetch();
                out[1] = out[0];
                rotary(stream, shape, dtype, at(out[1]), frequencies, Rotation::inverse,
                       numbered ? at(positions) : nullptr, 4);
              },
          .repeats = true};
}

/// A product twice. `y_dtype`: f32 or `dtype`.
Operator matrix_vector_row(std::size_t n, std::size_t k, DType dtype, DType y_dtype, bool has_bias) {
  const TypedArray a(dtype, n * k, 1), x(dtype, k, 2), bias(dtype, n, 3);
  std::vector<Bound> bounds;
  for (std::size_t i = 0; i < n; ++i) {
    double sum = has_bias ? bias[i] : 0, size = 1;
    for (std::size_t j = 0; j < k; ++j) {
      sum += a[i * k + j] * x[j];
      size += std::abs(a[i * k + j] * x[j]);
    }
    bounds.push_back(within(sum, 1.01 * half_unit(y_dtype), 1.01e-6 * size));
  }
  return {.name = fmt::format("{} rows of {} by a vector{}", n, k, has_bias ? ", with bias" : ""),
          .outputs = {{"y", TypedArray(y_dtype, n), given(std::move(bounds))},
                      {"y again", TypedArray(y_dtype, n), nullptr, 0}},
          .call =
              [=](StreamView stream, DeviceCopies& at, Outputs& out) {
                for (TypedArray& y : out)
                  matrix_vector(stream, {.m = 1, .n = n, .k = k, .transpose_b = true},
                                {.c = at(y),
                                 .c_dtype = y_dtype,
                                 .a = at(x),
                                 .b = at(a),
                                 .dtype = dtype,
                                 .bias = has_bias ? at(bias) : nullptr});
              },
          .repeats = true};
}

/// Sums twice. `sums_dtype`: f32 or `dtype`.
Operator column_sums_row(std::size_t m, std::size_t n, DType dtype, DType sums_dtype, bool accumulate) {
  const TypedArray dy(dtype, m * n, 10), before(sums_dtype, n, 11);
  std::vector<Bound> bounds;
  for (std::size_t j = 0; j < n; ++j) {
    double sum = accumulate ? before[j] : 0, magnitude = std::abs(sum);
    for (std::size_t i = 0; i < m; ++i) {
      sum += dy[i * n + j];
      magnitude += std::abs(dy[i * n + j]);
    }
    bounds.push_back(within(sum, half_unit(sums_dtype), 1e-6 * magnitude));
  }
  return {.name = fmt::format("sums of {} columns of {} rows{}", n, m, accumulate ? ", added" : ""),
          .outputs = {{"sums", before, given(std::move(bounds))}, {"sums again", before, nullptr, 0}},
          .call =
              [=](StreamView stream, DeviceCopies& at, Outputs& out) {
                for (TypedArray& sums : out)
                  column_sums(stream, at(sums), sums_dtype, at(dy), dtype, m, n, accumulate);
              },
          .repeats = true};
}

/// Float sums, rounded once.
Operator store_gradient_row(DType dtype) {
  const TypedArray sums(DType::f32, 37, 38), before(dtype, 37, 39);
  TypedArray stored(dtype, 37), added(dtype, 37);
  for (std::size_t i = 0; i < 37; ++i) {
    stored.set(i, sums[i]);
    added.set(i, static_cast<float>(sums[i]) + static_cast<float>(before[i]));
  }
  return {.name = "a gradient that was summed separately",
          .outputs = {{"stored", TypedArray(dtype, 37), given(stored)}, {"added", before, given(added)}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            const auto* values = reinterpret_cast<const float*>(at(sums));
            store_gradient(stream, at(out[0]), dtype, values, 37, false);
            store_gradient(stream, at(out[1]), dtype, values, 37, true);
          }};
}

constexpr PatchShape patch_shapes[] = {
    {.samples = 2, .height = 5, .width = 6, .channels = 3, .kernel = 3, .stride = 1, .padding = 1},
    {.samples = 3, .height = 7, .width = 4, .channels = 5, .kernel = 3, .stride = 2, .padding = 1},
    {.samples = 1, .height = 9, .width = 8, .channels = 3, .kernel = 7, .stride = 2, .padding = 3},
    {.samples = 2, .height = 5, .width = 5, .channels = 19, .kernel = 1, .stride = 2, .padding = 0},
    {.samples = 1, .height = 1, .width = 1, .channels = 2, .kernel = 3, .stride = 2, .padding = 1},
    {.samples = 1, .height = 4, .width = 3, .channels = 67, .kernel = 3, .stride = 1, .padding = 1},
    {.samples = 2, .height = 3, .width = 3, .channels = 32, .kernel = 3, .stride = 2, .padding = 1}};

std::string name_of(const char* what, const PatchShape& shape) {
  return fmt::format("{} of {} x {} pixels of {} channels, stride {}", what, shape.kernel, shape.kernel,
                     shape.channels, shape.stride);
}

std::size_t image_elements(const PatchShape& shape) {
  return shape.samples * shape.height * shape.width * shape.channels;
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

/// Patches with zeros outside, and their sums by pixel.
Operator patches_row(DType dtype, const PatchShape& shape) {
  const std::size_t C = shape.channels, columns = shape.columns();
  const TypedArray x(dtype, image_elements(shape), 51), values(DType::f32, shape.rows() * columns, 52);
  std::vector<double> patches(shape.rows() * columns), sums(x.size());
  for_taps(shape, [&](std::size_t row, std::size_t tap, std::size_t pixel) {
    for (std::size_t c = 0; c < C; ++c) {
      patches[row * columns + c * shape.taps() + tap] = x[pixel * C + c];
      sums[pixel * C + c] += values[row * columns + c * shape.taps() + tap];
    }
  });
  return {.name = name_of("patches", shape),
          .outputs = {{"gathered", TypedArray(dtype, patches.size(), 53), given(patches)},
                      {"added", TypedArray(dtype, x.size(), 54), given(sums, 1.01 * half_unit(dtype), 2e-6)}},
          .call =
              [=](StreamView stream, DeviceCopies& at, Outputs& out) {
                gather_patches(stream, shape, dtype, at(out[0]), at(x));
                add_patches(stream, shape, dtype, at(out[1]), reinterpret_cast<const float*>(at(values)));
              },
          .repeats = true};
}

/// The gradient goes to the first of equal pixels.
Operator max_pool_row(DType dtype, const PatchShape& shape) {
  const std::size_t C = shape.channels;
  TypedArray x(dtype, image_elements(shape), 61);
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, std::round(2 * x[i]) - 3);  // often equal, mostly negative
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
  return {.name = name_of("maximum", shape),
          .outputs = {{"y", TypedArray(dtype, dy.size()), given(greatest)},
                      {"dx", TypedArray(dtype, x.size(), 63), given(gradient, 1.01 * half_unit(dtype), 2e-6)}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            auto* const places = reinterpret_cast<std::uint8_t*>(at.scratch(dy.size()));
            max_pool_forward(stream, shape, dtype, at(out[0]), places, at(x));
            max_pool_backward(stream, shape, dtype, at(out[1]), at(dy), places);
          }};
}

/// A NaN is the maximum of every patch.
Operator nan_pool_row(std::size_t bad) {
  TypedArray x(DType::f32, 4, 64);
  x.set(bad, NAN);
  return {.name = fmt::format("maximum, pixel {} is NaN", bad),
          .outputs = {{"y", TypedArray(DType::f32, 4), given(std::vector<Bound>(4, {NAN}))}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            const PatchShape shape{
                .samples = 1, .height = 2, .width = 2, .channels = 1, .kernel = 3, .stride = 1, .padding = 1};
            max_pool_forward(stream, shape, DType::f32, at(out[0]), reinterpret_cast<std::uint8_t*>(at.scratch(4)),
                             at(x));
          }};
}

Operator mean_pool_row(DType dtype) {
  const MeanPoolShape shape{.samples = 3, .pixels = 7, .channels = 21};
  const TypedArray x(dtype, 3 * 7 * 21, 71), dy(dtype, 3 * 21, 72);
  const double unit = 1.01 * half_unit(dtype);
  return {.name = "means of images",
          .outputs = {{"y", TypedArray(dtype, dy.size()), each([=](std::size_t i) {
                         double mean = 0;
                         for (std::size_t pixel = 0; pixel < 7; ++pixel)
                           mean += x[(i / 21 * 7 + pixel) * 21 + i % 21] / 7;
                         return within(mean, unit, 1e-6);
                       })},
                      {"dx", TypedArray(dtype, x.size()),
                       each([=](std::size_t i) { return within(dy[i / 21 / 7 * 21 + i % 21] / 7, unit, 1e-7); })}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            mean_pool_forward(stream, shape, dtype, at(out[0]), at(x));
            mean_pool_backward(stream, shape, dtype, at(out[1]), at(dy));
          }};
}

/// Bytes of planes.
Operator pixels_row(DType dtype) {
  const PixelScale scale{.mean = {0.5f, 0.25f, 0}, .deviation = {1, 0.5f, 2}};
  std::vector<std::uint8_t> bytes(2 * 3 * 35);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(37 * i + i / 7);
  return {.name = "scaled pixels",
          .outputs = {{"y", TypedArray(dtype, bytes.size()), each([=](std::size_t i) {
                         const std::size_t k = i % 3, pixel = i / 3 % 35, sample = i / 3 / 35;
                         const double value = bytes[(sample * 3 + k) * 35 + pixel] / 255.0;
                         return within((value - double{scale.mean[k]}) / double{scale.deviation[k]},
                                       1.01 * half_unit(dtype), 1e-6);
                       })}},
          .call = [=](StreamView stream, DeviceCopies& at, Outputs& out) {
            read_pixels(stream, 2, 35, dtype, at(out[0]), at(bytes), scale);
          }};
}

}  // namespace

TEST_CASE("activations equal their formulas, forward and backward") {
  for (const DType dtype : float_types) {
    for (const GeluForm form : {GeluForm::tanh, GeluForm::erf})
      for (const std::size_t n : {1013, 1016}) check_operator(gelu_row(dtype, form, n));
    for (const std::size_t channels : {1, 21, 48}) check_operator(swiglu_row(dtype, channels));
    check_operator(tanh_row(dtype));
  }
  for (const GeluForm form : {GeluForm::tanh, GeluForm::erf}) check_operator(precise_gelu_row(form));
}

TEST_CASE("activations of extreme values give NaN only for NaN") {
  for (const GeluForm form : {GeluForm::tanh, GeluForm::erf}) check_operator(extreme_gelu_row(form));
  check_operator(extreme_swiglu_row());
  check_operator(extreme_tanh_row());
}

TEST_CASE("queries and keys rotate by their positions' angles, values do not, and the inverse restores them") {
  for (const DType dtype : float_types)
    for (const int channels : {2, 6, 32})
      for (const bool numbered : {false, true}) check_operator(rotary_row(dtype, channels, numbered));
}

TEST_CASE("the product of a matrix and a vector equals the definition, with the same bits on any device") {
  for (const DType dtype : float_types)
    for (const DType y_dtype : {DType::f32, dtype})
      for (const bool has_bias : {false, true})
        for (const auto& [n, k] :
             {std::array<std::size_t, 2>{1, 1}, {5, 3}, {64, 48}, {131, 67}, {200, 768}, {300, 131}})
          check_operator(matrix_vector_row(n, k, dtype, y_dtype, has_bias));
}

TEST_CASE("column sums equal the plain sums, with the same bits on any device, and are stored or added") {
  for (const DType dtype : float_types) {
    for (const DType sums_dtype : {DType::f32, dtype})
      for (const auto& [m, n] :
           {std::array<std::size_t, 2>{0, 5}, {1, 1}, {7, 33}, {300, 200}, {1025, 64}, {9000, 8}})
        for (const bool accumulate : {false, true})
          check_operator(column_sums_row(m, n, dtype, sums_dtype, accumulate));
    check_operator(store_gradient_row(dtype));
  }
}

TEST_CASE("operators of images equal their definitions, forward and backward") {
  for (const DType dtype : float_types) {
    for (const PatchShape& shape : patch_shapes) {
      check_operator(patches_row(dtype, shape));
      check_operator(max_pool_row(dtype, shape));
    }
    check_operator(mean_pool_row(dtype));
    check_operator(pixels_row(dtype));
  }
  for (const std::size_t bad : {0, 1, 2, 3}) check_operator(nan_pool_row(bad));
}

TEST_CASE("a product of a matrix and a vector in a third type is refused") {
  on_one_device([](StreamView stream) {
    float y = 0, a = 0, x = 0;
    CHECK_THROWS_AS(matrix_vector(stream, {.m = 1, .n = 1, .k = 1, .transpose_b = true},
                                  {.c = &y, .c_dtype = DType::f16, .a = &x, .b = &a}),
                    Error);
  });
}

TEST_CASE("rotary frequencies fall geometrically, and scaling equals the papers' models") {
  const auto plain = rotary_frequencies(128, 10000);
  CHECK(plain.of_pair[0] == 1.0f);
  CHECK(plain.of_pair[32] == doctest::Approx(0.01));
  CHECK(plain.of_pair[63] == doctest::Approx(std::pow(10000.0, -126.0 / 128)));

  const auto linear = rotary_frequencies(128, 10000, RopeScaling{.factor = 4});
  for (int c = 0; c < 64; ++c) CHECK(linear.of_pair[c] == doctest::Approx(plain.of_pair[c] / 4));

  // LLaMA 3.1 8B: wavelengths above 8192 positions are divided by 8, those below 2048 kept; the 30th is between, and
  // equals transformers' _compute_llama3_parameters.
  const RopeScaling scaling{.kind = RopeScaling::Kind::llama3, .factor = 8};
  const auto before = rotary_frequencies(128, 500000), after = rotary_frequencies(128, 500000, scaling);
  for (int c = 0; c < 64; ++c) {
    const double wavelength = 2 * 3.14159265358979 / static_cast<double>(before.of_pair[c]);
    if (wavelength < 2048) CHECK(after.of_pair[c] == before.of_pair[c]);
    if (wavelength > 8192) CHECK(after.of_pair[c] == doctest::Approx(before.of_pair[c] / 8));
  }
  const double f = std::pow(500000.0, -60.0 / 128), wavelength = 2 * 3.14159265358979 / f;
  const double smooth = (8192 / wavelength - 1) / (4 - 1);
  CHECK(wavelength > 2048);
  CHECK(wavelength < 8192);
  CHECK(after.of_pair[30] == doctest::Approx((1 - smooth) * f / 8 + smooth * f));

  CHECK_THROWS_AS(static_cast<void>(rotary_frequencies(7, 10000)), Error);
  CHECK_THROWS_AS(static_cast<void>(rotary_frequencies(RotaryFrequencies::max_channels + 2, 10000)), Error);
}
