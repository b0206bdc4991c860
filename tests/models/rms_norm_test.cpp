#include "models/ops/rms_norm.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr double epsilon = 1e-6;

std::vector<double> plain_group(const std::vector<double>& x, const TypedArray& weight) {
  double squares = 0;
  for (const double value : x) squares += value * value / static_cast<double>(x.size());
  std::vector<double> y;
  for (std::size_t c = 0; c < x.size(); ++c) y.push_back(x[c] / std::sqrt(squares + epsilon) * weight[c]);
  return y;
}

struct Case {
  DType dtype;
  std::size_t channels, groups, x_gap, y_gap;  ///< gaps: between rows
  bool with_branch;
};

}  // namespace

TEST_CASE("RMS norm equals the formula, for rows and heads in wider rows, with and without a residual") {
  std::vector<Case> cases;
  for (const DType dtype : float_types) {
    for (const std::size_t channels : {1, 5, 40, 100}) {
      cases.push_back({dtype, channels, 1, 0, 0, false});
      cases.push_back({dtype, channels, 1, 0, 0, true});
    }
    cases.push_back({dtype, 16, 5, 0, 32, false});
    cases.push_back({dtype, 6, 3, 7, 2, false});
  }
  for (const Case& c : cases) {
    CAPTURE_ALL(to_string(c.dtype), c.channels, c.groups, c.with_branch);
    const auto rows = static_cast<std::size_t>(tests::effort(71, 71, 23)) / c.groups;
    RmsNormShape shape{rows, c.channels, static_cast<float>(epsilon), c.groups};
    if (c.x_gap != 0) shape.x_stride = c.groups * c.channels + c.x_gap;
    if (c.y_gap != 0) shape.y_stride = c.groups * c.channels + c.y_gap;
    const std::size_t x_elements = rows * shape.x_row(), y_elements = rows * shape.y_row();
    const TypedArray x(c.dtype, x_elements, 31, 1.5), branch(c.dtype, x_elements, 32), dy(c.dtype, y_elements, 33),
        residual(c.dtype, y_elements, 34), weight(c.dtype, c.channels, 35);

    enum Output { y, again, sum, dx, rstd, weight_sums };
    // Gaps between the groups stay unchanged.
    const Outputs r = check_operator(
        {.name = "RMS norm",
         .outputs = {{"y", TypedArray(c.dtype, y_elements)},
                     {"y again", TypedArray(c.dtype, y_elements), nullptr, y},
                     {"sum", x},
                     {"dx", dy},
                     {"rstd", TypedArray(DType::f32, rows * c.groups)},
                     {"weight sums", TypedArray(DType::f32, c.channels)}},
         .call =
             [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
               RmsNormForward forward{
                   .y = at(out[y]), .rstd = at.floats(out[rstd]), .x = at(x), .weight = at(weight)};
               if (c.with_branch) {
                 forward.branch = at(branch);
                 forward.sum = at(out[sum]);
               }
               rms_norm_forward(stream, shape, c.dtype, forward);
               rms_norm_again(stream, shape, c.dtype, at(out[again]), forward.rstd, at(out[sum]), at(weight));
               rms_norm_backward(stream, shape, c.dtype,
                                 {.dx = at(out[dx]),  // in place
                                  .weight_sums = at.floats(out[weight_sums]),
                                  .dy = at(out[dx]),
                                  .x = at(out[sum]),
                                  .rstd = forward.rstd,
                                  .weight = at(weight),
                                  .residual = c.with_branch ? at(residual) : nullptr,
                                  .workspace = at.scratch(rms_norm_workspace_bytes(shape))});
             },
         .repeats = true});

    const double unit = half_unit(c.dtype);
    std::vector<double> d_weight(c.channels);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < rows * c.groups; ++i) {
      const std::size_t from = i / c.groups * shape.x_row() + i % c.groups * c.channels;
      const std::size_t to = i / c.groups * shape.y_row() + i % c.groups * c.channels;
      std::vector<double> values;
      for (std::size_t k = 0; k < c.channels; ++k) {
        values.push_back(r[sum][from + k]);
        const double exact = x[from + k] + (c.with_branch ? branch[from + k] : 0);
        wrong += !(std::abs(values[k] - exact) <= std::abs(exact) * unit * 1.01 + 1e-7);
      }
      const auto expected = plain_group(values, weight);
      const auto loss = [&] {
        const auto moved = plain_group(values, weight);
        double total = 0;
        for (std::size_t k = 0; k < c.channels; ++k) total += moved[k] * dy[to + k];
        return total;
      };
      for (std::size_t k = 0; k < c.channels; ++k) {
        wrong += !(std::abs(r[y][to + k] - expected[k]) <= std::abs(expected[k]) * (unit * 1.01 + 1e-6) + 4e-8);
        d_weight[k] += dy[to + k] * expected[k] / weight[k];
        const double exact = slope_in(values[k], 1e-5, loss) + (c.with_branch ? residual[to + k] : 0);
        wrong += !(std::abs(r[dx][to + k] - exact) <= std::abs(exact) * unit * 1.01 + 1e-5 + 1e-6 * r[rstd][i]);
      }
    }
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t k = c.groups * c.channels; k < shape.y_row(); ++k) {
        wrong += r[y][row * shape.y_row() + k] != 0;
        wrong += r[dx][row * shape.y_row() + k] != dy[row * shape.y_row() + k];
      }
    CHECK(wrong == 0);
    for (std::size_t k = 0; k < c.channels; ++k)
      CHECK(r[weight_sums][k] == doctest::Approx(d_weight[k]).epsilon(1e-5).scale(10));
  }
}
