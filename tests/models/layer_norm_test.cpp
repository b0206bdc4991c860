#include "models/ops/layer_norm.hpp"
#include "tests/models/operator_check.hpp"
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

}  // namespace

TEST_CASE("layer norm equals the formula, forward and backward, with and without a residual") {
  for (const DType dtype : float_types) {
    for (const std::size_t channels : {1, 5, 16, 40, 100}) {
      for (const bool with_branch : {false, true}) {
        CAPTURE_ALL(to_string(dtype), channels, with_branch);
        const std::size_t rows = static_cast<std::size_t>(tests::effort(71, 71, 23));
        TypedArray x(dtype, rows * channels, 31, 1.5);
        for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x[i] + 0.7);
        const TypedArray branch(dtype, rows * channels, 32), dy(dtype, rows * channels, 33),
            residual(dtype, rows * channels, 34), weight(dtype, channels, 35), bias(dtype, channels, 36);

        const float epsilon = with_branch ? 0.03f : LayerNormShape().epsilon;
        enum Output { y, again, sum, dx, mean, rstd, sums };
        const LayerNormShape shape{rows, channels, epsilon};
        const bool in_place = channels % 2 == 0;
        const TypedArray zeros(dtype, rows * channels), of_rows(DType::f32, rows);
        const Outputs r =
            check_operator({.name = "layer norm",
                            .outputs = {{"y", zeros},
                                        {"y again", zeros, nullptr, y},
                                        {"sum", !with_branch ? x
                                                : in_place   ? branch
                                                             : zeros},
                                        {"dx", zeros},
                                        {"mean", of_rows},
                                        {"rstd", of_rows},
                                        {"sums", TypedArray(DType::f32, 2 * channels)}},
                            .call =
                                [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
                                  LayerNormForward forward{.y = at(out[y]),
                                                           .mean = at.floats(out[mean]),
                                                           .rstd = at.floats(out[rstd]),
                                                           .x = at(x),
                                                           .weight = at(weight),
                                                           .bias = at(bias)};
                                  if (with_branch) {
                                    forward.sum = at(out[sum]);
                                    forward.branch = in_place ? forward.sum : at(branch);
                                  }
                                  layer_norm_forward(stream, shape, dtype, forward);
                                  layer_norm_again(stream, shape, dtype, at(out[again]), forward.mean, forward.rstd,
                                                   at(out[sum]), at(weight), at(bias));
                                  layer_norm_backward(stream, shape, dtype,
                                                      {.dx = at(out[dx]),
                                                       .sums = at.floats(out[sums]),
                                                       .dy = at(dy),
                                                       .x = at(out[sum]),
                                                       .mean = forward.mean,
                                                       .rstd = forward.rstd,
                                                       .weight = at(weight),
                                                       .residual = with_branch ? at(residual) : nullptr,
                                                       .workspace = at.scratch(layer_norm_workspace_bytes(shape))});
                                },
                            .repeats = true});

        const double unit = half_unit(dtype);
        std::vector<double> d_weight(channels), d_bias(channels);
        std::size_t wrong = 0;
        for (std::size_t row = 0; row < rows; ++row) {
          auto values = row_of(r[sum], row, channels);
          if (with_branch) {
            for (std::size_t c = 0; c < channels; ++c) {
              const double exact = x[row * channels + c] + branch[row * channels + c];
              wrong += !(std::abs(values[c] - exact) <= std::abs(exact) * unit * 1.01 + 1e-7);
            }
          }
          const auto expected = plain_row(values, weight, bias, static_cast<double>(epsilon));
          const auto loss = [&] {
            const auto moved = plain_row(values, weight, bias, static_cast<double>(epsilon));
            double total = 0;
            for (std::size_t c = 0; c < channels; ++c) total += moved[c] * dy[row * channels + c];
            return total;
          };
          for (std::size_t c = 0; c < channels; ++c) {
            const std::size_t i = row * channels + c;
            wrong += !(std::abs(r[y][i] - expected[c]) <= std::abs(expected[c]) * unit * 1.01 + 2e-6);
            d_bias[c] += dy[i];
            d_weight[c] += dy[i] * (expected[c] - bias[c]) / weight[c];
            const double exact = slope_in(values[c], 1e-5, loss) + (with_branch ? residual[i] : 0);
            wrong += !(std::abs(r[dx][i] - exact) <= std::abs(exact) * unit * 1.01 + 1e-5 + 1e-7 * r[rstd][row]);
          }
        }
        CHECK(wrong == 0);
        for (std::size_t c = 0; c < channels; ++c) {
          CHECK(r[sums][c] == doctest::Approx(d_weight[c]).epsilon(1e-5).scale(10));
          CHECK(r[sums][channels + c] == doctest::Approx(d_bias[c]).epsilon(1e-5).scale(10));
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
  TypedArray result(DType::f32, channels);
  on_one_device([&](runtime::StreamView stream) {
    DeviceCopies at(stream);
    float saved[2] = {};
    layer_norm_forward(stream, {1, channels}, DType::f32,
                       {.y = at(result),
                        .mean = at(saved, 1),
                        .rstd = at(saved + 1, 1),
                        .x = at(x),
                        .weight = at(weight),
                        .bias = at(bias)});
    at.fetch();
  });
  const auto expected = plain_row(row_of(x, 0, channels), weight, bias);
  for (std::size_t c = 0; c < channels; ++c) CHECK(std::abs(result[c] - expected[c]) < 1e-3);
}
