#include "models/ops/rms_norm.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"
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

struct Result {
  TypedArray y, again, sum, dx;
  std::vector<float> rstd, weight_sums;
};

}  // namespace

TEST_CASE("RMS norm equals the formula, for rows and heads in wider rows, with and without a residual") {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
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

    std::optional<Result> first;
    on_every_device([&](runtime::StreamView stream) {
      // Gaps between the groups stay unchanged.
      Result r{TypedArray(c.dtype, y_elements),     TypedArray(c.dtype, y_elements), x, dy,
               std::vector<float>(rows * c.groups), std::vector<float>(c.channels)};
      DeviceCopies at(stream);
      RmsNormForward forward{.y = at(r.y), .rstd = at(r.rstd), .x = at(x), .weight = at(weight)};
      if (c.with_branch) {
        forward.branch = at(branch);
        forward.sum = at(r.sum);
      }
      rms_norm_forward(stream, shape, c.dtype, forward);
      rms_norm_again(stream, shape, c.dtype, at(r.again), at(r.rstd), at(r.sum), at(weight));
      std::vector<std::byte> workspace(rms_norm_workspace_bytes(shape), std::byte{0xff});
      rms_norm_backward(stream, shape, c.dtype,
                        {.dx = at(r.dx),  // in place
                         .weight_sums = at(r.weight_sums),
                         .dy = at(r.dx),
                         .x = at(r.sum),
                         .rstd = at(r.rstd),
                         .weight = at(weight),
                         .residual = c.with_branch ? at(residual) : nullptr,
                         .workspace = at(workspace)});
      at.fetch();
      CHECK(same_bits(r.y, r.again));
      if (!first) {
        first = r;
      } else {  // any number of threads
        CHECK(same_bits(r.y, first->y));
        CHECK(same_bits(r.dx, first->dx));
        CHECK(r.weight_sums == first->weight_sums);
      }
    });

    const double unit = half_unit(c.dtype);
    std::vector<double> d_weight(c.channels);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < rows * c.groups; ++i) {
      const std::size_t from = i / c.groups * shape.x_row() + i % c.groups * c.channels;
      const std::size_t to = i / c.groups * shape.y_row() + i % c.groups * c.channels;
      std::vector<double> values;
      for (std::size_t k = 0; k < c.channels; ++k) {
        values.push_back(first->sum[from + k]);
        const double exact = x[from + k] + (c.with_branch ? branch[from + k] : 0);
        wrong += !(std::abs(values[k] - exact) <= std::abs(exact) * unit * 1.01 + 1e-7);
      }
      const auto expected = plain_group(values, weight);
      const auto loss = [&](const std::vector<double>& at) {
        const auto y = plain_group(at, weight);
        double sum = 0;
        for (std::size_t k = 0; k < c.channels; ++k) sum += y[k] * dy[to + k];
        return sum;
      };
      for (std::size_t k = 0; k < c.channels; ++k) {
        wrong += !(std::abs(first->y[to + k] - expected[k]) <= std::abs(expected[k]) * (unit * 1.01 + 1e-6) + 4e-8);
        d_weight[k] += dy[to + k] * expected[k] / weight[k];
        const double step = 1e-5, keep = values[k];
        values[k] = keep + step;
        double slope = loss(values);
        values[k] = keep - step;
        slope = (slope - loss(values)) / (2 * step);
        values[k] = keep;
        const double exact = slope + (c.with_branch ? residual[to + k] : 0);
        wrong += !(std::abs(first->dx[to + k] - exact) <=
                   std::abs(exact) * unit * 1.01 + 1e-5 + 1e-6 * static_cast<double>(first->rstd[i]));
      }
    }
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t k = c.groups * c.channels; k < shape.y_row(); ++k) {
        wrong += first->y[row * shape.y_row() + k] != 0;
        wrong += first->dx[row * shape.y_row() + k] != dy[row * shape.y_row() + k];
      }
    CHECK(wrong == 0);
    for (std::size_t k = 0; k < c.channels; ++k)
      CHECK(first->weight_sums[k] == doctest::Approx(d_weight[k]).epsilon(1e-5).scale(10));
  }
}
