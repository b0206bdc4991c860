#include "models/ops/layer_norm.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

std::vector<double> plain_row(const std::vector<double>& x, const TypedArray& weight, const TypedArray& bias,
                              double epsilon = 1e-5) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double value : x) mean += value / n;
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  std::vector<double> y;
  for (std::size_t c = 0; c < x.size(); ++c)
    y.push_back((x[c] - mean) / std::sqrt(variance + epsilon) * weight[c] + bias[c]);
  return y;
}

std::vector<double> row_of(const TypedArray& x, std::size_t row, std::size_t channels) {
  std::vector<double> values;
  for (std::size_t c = 0; c < channels; ++c) values.push_back(x[row * channels + c]);
  return values;
}

struct Result {
  Result(DType dtype, std::size_t rows, std::size_t channels)
      : y(dtype, rows * channels),
        again(dtype, rows * channels),
        sum(dtype, rows * channels),
        dx(dtype, rows * channels),
        mean(rows),
        rstd(rows),
        sums(2 * channels) {}

  TypedArray y, again, sum, dx;
  std::vector<float> mean, rstd, sums;
};

}  // namespace

TEST_CASE("layer norm equals the formula, forward and backward, with and without a residual") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::size_t channels : {1, 5, 16, 40, 100}) {
      for (const bool with_branch : {false, true}) {
        CAPTURE_ALL(to_string(dtype), channels, with_branch);
        const std::size_t rows = static_cast<std::size_t>(tests::effort(71, 71, 23));
        TypedArray x(dtype, rows * channels, 31, 1.5);
        for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x[i] + 0.7);
        const TypedArray branch(dtype, rows * channels, 32), dy(dtype, rows * channels, 33),
            residual(dtype, rows * channels, 34), weight(dtype, channels, 35), bias(dtype, channels, 36);

        const float epsilon = with_branch ? 0.03f : LayerNormShape().epsilon;
        std::optional<Result> first;
        on_every_device([&](runtime::StreamView stream) {
          Result r(dtype, rows, channels);
          const LayerNormShape shape{rows, channels, epsilon};
          DeviceCopies at(stream);
          LayerNormForward forward{.y = at(r.y),
                                   .mean = at(r.mean),
                                   .rstd = at(r.rstd),
                                   .x = at(x),
                                   .weight = at(weight),
                                   .bias = at(bias)};
          if (with_branch) {
            const bool in_place = channels % 2 == 0;
            if (in_place) r.sum = branch;
            forward.sum = at(r.sum);
            forward.branch = in_place ? forward.sum : at(branch);
          } else {
            r.sum = x;
          }
          layer_norm_forward(stream, shape, dtype, forward);
          layer_norm_again(stream, shape, dtype, at(r.again), at(r.mean), at(r.rstd), at(r.sum), at(weight),
                           at(bias));
          std::vector<std::byte> workspace(layer_norm_workspace_bytes(shape), std::byte{0xff});
          layer_norm_backward(stream, shape, dtype,
                              {.dx = at(r.dx),
                               .sums = at(r.sums),
                               .dy = at(dy),
                               .x = at(r.sum),
                               .mean = at(r.mean),
                               .rstd = at(r.rstd),
                               .weight = at(weight),
                               .residual = with_branch ? at(residual) : nullptr,
                               .workspace = at(workspace)});
          at.fetch();
          CHECK(same_bits(r.y, r.again));
          if (!first) {
            first = r;
          } else {  // any number of threads
            CHECK(same_bits(r.y, first->y));
            CHECK(same_bits(r.dx, first->dx));
            CHECK(r.sums == first->sums);
          }
        });

        const double unit = half_unit(dtype);
        std::vector<double> d_weight(channels), d_bias(channels);
        std::size_t wrong = 0;
        for (std::size_t row = 0; row < rows; ++row) {
          auto values = row_of(first->sum, row, channels);
          if (with_branch) {
            for (std::size_t c = 0; c < channels; ++c) {
              const double exact = x[row * channels + c] + branch[row * channels + c];
              wrong += !(std::abs(values[c] - exact) <= std::abs(exact) * unit * 1.01 + 1e-7);
            }
          }
          const auto expected = plain_row(values, weight, bias, static_cast<double>(epsilon));
          const auto loss = [&](const std::vector<double>& at) {
            const auto y = plain_row(at, weight, bias, static_cast<double>(epsilon));
            double sum = 0;
            for (std::size_t c = 0; c < channels; ++c) sum += y[c] * dy[row * channels + c];
            return sum;
          };
          for (std::size_t c = 0; c < channels; ++c) {
            const std::size_t i = row * channels + c;
            wrong += !(std::abs(first->y[i] - expected[c]) <= std::abs(expected[c]) * unit * 1.01 + 2e-6);
            d_bias[c] += dy[i];
            d_weight[c] += dy[i] * (expected[c] - bias[c]) / weight[c];
            const double step = 1e-5, keep = values[c];
            values[c] = keep + step;
            double slope = loss(values);
            values[c] = keep - step;
            slope = (slope - loss(values)) / (2 * step);
            values[c] = keep;
            const double exact = slope + (with_branch ? residual[i] : 0);
            wrong +=
                !(std::abs(first->dx[i] - exact) <= std::abs(exact) * unit * 1.01 + 1e-5 + 1e-7 * first->rstd[row]);
          }
        }
        CHECK(wrong == 0);
        for (std::size_t c = 0; c < channels; ++c) {
          CHECK(first->sums[c] == doctest::Approx(d_weight[c]).epsilon(1e-5).scale(10));
          CHECK(first->sums[channels + c] == doctest::Approx(d_bias[c]).epsilon(1e-5).scale(10));
        }
      }
    }
  }
}

TEST_CASE("a row far from zero keeps its variance") {
  const std::size_t channels = 768;
  TypedArray x(DType::f32, channels, 37, 0.5), weight(DType::f32, channels), bias(DType::f32, channels);
  for (std::size_t c = 0; c < channels; ++c) {
    x.set(c, x[c] + 300);
    weight.set(c, 1);
  }
  Result r(DType::f32, 1, channels);
  on_one_device([&](runtime::StreamView stream) {
    DeviceCopies at(stream);
    layer_norm_forward(
        stream, {1, channels}, DType::f32,
        {.y = at(r.y), .mean = at(r.mean), .rstd = at(r.rstd), .x = at(x), .weight = at(weight), .bias = at(bias)});
    at.fetch();
  });
  const auto expected = plain_row(row_of(x, 0, channels), weight, bias);
  for (std::size_t c = 0; c < channels; ++c) CHECK(std::abs(r.y[c] - expected[c]) < 1e-3);
}
