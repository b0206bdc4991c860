#include "models/ops/norm.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// Allowed errors of y beyond rounding, and of dx per rstd.
struct Errors {
  double relative, absolute, per_rstd;
};

struct Case {
  NormShape shape;  ///< rows are set by the test
  DType dtype;
  bool with_branch;
  bool in_place;  ///< the sum replaces the branch, and dx replaces dy

  [[nodiscard]] bool centred() const { return shape.kind == NormKind::layer; }
  [[nodiscard]] Errors errors() const { return centred() ? Errors{0, 2e-6, 1e-7} : Errors{1e-6, 4e-8, 1e-6}; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : float_types) {
    for (const bool with_branch : {false, true}) {
      for (const bool in_place : {false, true}) {
        for (const NormKind kind : {NormKind::layer, NormKind::rms})
          for (const std::size_t channels : {1, 5, 16, 40, 100}) {
            const float epsilon = kind == NormKind::rms ? 1e-6f : with_branch ? 0.03f : NormShape().epsilon;
            all.push_back({{.channels = channels, .epsilon = epsilon, .kind = kind}, dtype, with_branch, in_place});
          }
      }
    }
    all.push_back({{.channels = 16, .epsilon = 1e-6f, .kind = NormKind::rms, .groups = 5, .y_stride = 112},
                   dtype,
                   false,
                   true});
    all.push_back(
        {{.channels = 6, .epsilon = 1e-6f, .kind = NormKind::rms, .groups = 3, .x_stride = 25, .y_stride = 20},
         dtype,
         false,
         true});
  }
  return all;
}

std::vector<double> plain_group(const NormShape& shape, const std::vector<double>& x, const TypedArray& weight,
                                const TypedArray& bias) {
  const bool centred = shape.kind == NormKind::layer;
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double value : x) mean += centred ? value / n : 0;
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  std::vector<double> y;
  for (std::size_t c = 0; c < x.size(); ++c)
    y.push_back((x[c] - mean) / std::sqrt(variance + static_cast<double>(shape.epsilon)) * weight[c] +
                (centred ? bias[c] : 0));
  return y;
}

}  // namespace

TEST_CASE("a norm equals the formula, for rows and heads in wider rows, with and without a residual") {
  for (const Case& c : cases()) {
    NormShape shape = c.shape;
    const std::size_t C = shape.channels, groups = shape.groups;
    shape.rows = static_cast<std::size_t>(tests::effort(71, 71, 23)) / groups;
    CAPTURE_ALL(to_string(c.dtype), c.centred(), C, groups, c.with_branch);
    const std::size_t x_elements = shape.rows * shape.x_row(), y_elements = shape.rows * shape.y_row();
    TypedArray x(c.dtype, x_elements, 31, 1.5);
    for (std::size_t i = 0; c.centred() && i < x.size(); ++i) x.set(i, x[i] + 0.7);
    const TypedArray branch(c.dtype, x_elements, 32), dy(c.dtype, y_elements, 33),
        residual(c.dtype, y_elements, 34), weight(c.dtype, C, 35), bias(c.dtype, C, 36);

    enum Output { y, again, sum, dx, mean, rstd, sums };
    const TypedArray zeros(c.dtype, y_elements), of_groups(DType::f32, shape.rows * groups);
    // Gaps between the groups stay unchanged.
    const Outputs r = check_operator({.name = "norm",
                                      .outputs = {{"y", zeros},
                                                  {"y again", zeros, nullptr, y},
                                                  {"sum", c.with_branch ? branch : x},
                                                  {"dx", c.in_place ? dy : zeros},
                                                  {"mean", of_groups},
                                                  {"rstd", of_groups},
                                                  {"sums", TypedArray(DType::f32, shape.parameters())}},
                                      .call =
                                          [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
                                            NormForward forward{.y = at(out[y]),
                                                                .mean = at.floats(out[mean]),
                                                                .rstd = at.floats(out[rstd]),
                                                                .x = at(x),
                                                                .weight = at(weight),
                                                                .bias = at(bias)};
                                            if (c.with_branch) {
                                              forward.sum = at(out[sum]);
                                              forward.branch = c.in_place ? forward.sum : at(branch);
                                            }
                                            norm_forward(stream, shape, c.dtype, forward);
                                            forward.y = at(out[again]);
                                            forward.x = at(out[sum]);
                                            forward.branch = nullptr;
                                            forward.again = true;
                                            norm_forward(stream, shape, c.dtype, forward);
                                            norm_backward(stream, shape, c.dtype,
                                                          {.dx = at(out[dx]),
                                                           .sums = at.floats(out[sums]),
                                                           .dy = c.in_place ? at(out[dx]) : at(dy),
                                                           .x = at(out[sum]),
                                                           .mean = forward.mean,
                                                           .rstd = forward.rstd,
                                                           .weight = at(weight),
                                                           .residual = c.with_branch ? at(residual) : nullptr,
                                                           .workspace = at.scratch(norm_workspace_bytes(shape))});
                                          },
                                      .repeats = true});

    const double unit = half_unit(c.dtype);
    const auto [relative, absolute, per_rstd] = c.errors();
    std::vector<double> d_weight(C), d_bias(C);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < shape.rows * groups; ++i) {
      const std::size_t from = i / groups * shape.x_row() + i % groups * C;
      const std::size_t to = i / groups * shape.y_row() + i % groups * C;
      std::vector<double> values;
      for (std::size_t k = 0; k < C; ++k) {
        values.push_back(r[sum][from + k]);
        const double exact = x[from + k] + (c.with_branch ? branch[from + k] : 0);
        wrong += !(std::abs(values[k] - exact) <= std::abs(exact) * unit * 1.01 + 1e-7);
      }
      const auto expected = plain_group(shape, values, weight, bias);
      const auto loss = [&] {
        const auto moved = plain_group(shape, values, weight, bias);
        double total = 0;
        for (std::size_t k = 0; k < C; ++k) total += moved[k] * dy[to + k];
        return total;
      };
      for (std::size_t k = 0; k < C; ++k) {
        wrong +=
            !(std::abs(r[y][to + k] - expected[k]) <= std::abs(expected[k]) * (unit * 1.01 + relative) + absolute);
        d_bias[k] += dy[to + k];
        d_weight[k] += dy[to + k] * (expected[k] - (c.centred() ? bias[k] : 0)) / weight[k];
        const double exact = slope_in(values[k], 1e-5, loss) + (c.with_branch ? residual[to + k] : 0);
        wrong += !(std::abs(r[dx][to + k] - exact) <= std::abs(exact) * unit * 1.01 + 1e-5 + per_rstd * r[rstd][i]);
      }
    }
    for (std::size_t row = 0; row < shape.rows; ++row)
      for (std::size_t k = groups * C; k < shape.y_row(); ++k) {
        wrong += r[y][row * shape.y_row() + k] != 0;
        wrong += r[dx][row * shape.y_row() + k] != dy[row * shape.y_row() + k];
      }
    CHECK(wrong == 0);
    for (std::size_t k = 0; k < C; ++k) {
      CHECK(r[sums][k] == doctest::Approx(d_weight[k]).epsilon(1e-5).scale(10));
      if (c.centred()) CHECK(r[sums][C + k] == doctest::Approx(d_bias[k]).epsilon(1e-5).scale(10));
    }
  }
}

TEST_CASE("a row far from zero keeps its variance") {
  const std::size_t channels = 768;
  TypedArray x(DType::f32, channels, 37, 0.5), weight(DType::f32, channels), bias(DType::f32, channels);
  std::vector<double> values;
  for (std::size_t c = 0; c < channels; ++c) {
    x.set(c, x[c] + 300);
    values.push_back(x[c]);
    weight.set(c, 1);
  }
  const NormShape shape{1, channels};
  TypedArray result(DType::f32, channels);
  on_one_device([&](runtime::StreamView stream) {
    DeviceCopies at(stream);
    float saved[2] = {};
    norm_forward(stream, shape, DType::f32,
                 {.y = at(result),
                  .mean = at(saved, 1),
                  .rstd = at(saved + 1, 1),
                  .x = at(x),
                  .weight = at(weight),
                  .bias = at(bias)});
    at.fetch();
  });
  const auto expected = plain_group(shape, values, weight, bias);
  for (std::size_t c = 0; c < channels; ++c) CHECK(std::abs(result[c] - expected[c]) < 1e-3);
}
