#include "models/ops/batch_norm.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Case {
  DType dtype;
  std::size_t rows, channels;
  bool adds, relu, fixed;
};

/// y of one channel; `statistics`: fixed mean and variance, or empty for the statistics of x.
std::vector<double> plain(const std::vector<double>& x, double weight, double bias,
                          const std::vector<double>& addend, bool relu, std::vector<double> statistics) {
  const auto rows = static_cast<double>(x.size());
  if (statistics.empty()) {
    statistics = {0, 0};
    for (const double value : x) statistics[0] += value / rows;
    for (const double value : x) statistics[1] += std::pow(value - statistics[0], 2) / rows;
  }
  std::vector<double> y;
  for (std::size_t row = 0; row < x.size(); ++row) {
    const double sum = (x[row] - statistics[0]) / std::sqrt(statistics[1] + 1e-5) * weight + bias +
                       (addend.empty() ? 0 : addend[row]);
    y.push_back(relu ? std::max(sum, 0.0) : sum);
  }
  return y;
}

std::vector<double> column(const TypedArray& values, std::size_t c, std::size_t channels) {
  std::vector<double> all;
  for (std::size_t i = c; i < values.size(); i += channels) all.push_back(values[i]);
  return all;
}

}  // namespace

TEST_CASE("batch norm and its gradients equal the formula, with and without fused operations, fixed or not") {
  std::vector<Case> cases;
  for (const DType dtype : float_types)
    for (const std::size_t rows : {1, 7, 65, 200})
      for (const bool relu : {false, true})
        cases.push_back({dtype, rows, 1 + rows % 37, rows % 2 == 0, relu, rows == 65});
  tests::Share share(1, 5);
  for (const Case& c : cases) {
    if (!share.takes()) continue;
    CAPTURE_ALL(to_string(c.dtype), c.rows, c.relu);
    const BatchNormShape shape{c.rows, c.channels};
    const std::size_t n = c.rows * c.channels, C = c.channels;
    TypedArray x(c.dtype, n, 31, 1.5), variance(c.dtype, C, 35);
    for (std::size_t i = 0; i < n; ++i) x.set(i, x[i] + 3);
    for (std::size_t i = 0; i < C; ++i) variance.set(i, 0.5 + std::abs(variance[i]));
    const TypedArray addend(c.dtype, n, 32), dy(c.dtype, n, 33), weight(c.dtype, C, 34), bias(c.dtype, C, 36),
        mean(c.dtype, C, 37);

    enum Output { y, dx, d_addend, statistics, sums };
    const Outputs r = check_operator(
        {.name = "batch norm",
         .outputs = {{"y", TypedArray(c.dtype, n)},
                     {"dx", dy},
                     {"d_addend", TypedArray(c.dtype, n)},
                     {"statistics", TypedArray(DType::f32, 3 * C)},
                     {"sums", TypedArray(DType::f32, 2 * C)}},
         .call =
             [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
               std::byte* const workspace = at.scratch(batch_norm_workspace_bytes(shape));
               float* const of_rows = at.floats(out[statistics]);
               if (c.fixed) {
                 batch_norm_fixed_statistics(stream, shape, c.dtype, of_rows, at(mean), at(variance));
               } else {
                 batch_norm_statistics(stream, shape, c.dtype, of_rows, at(x), workspace);
               }
               const BatchNormValues values{.x = at(x),
                                            .statistics = of_rows,
                                            .weight = at(weight),
                                            .bias = at(bias),
                                            .addend = c.adds ? at(addend) : nullptr,
                                            .relu = c.relu};
               batch_norm_forward(stream, shape, c.dtype, at(out[y]), values);
               batch_norm_backward(stream, shape, c.dtype,
                                   {.dx = at(out[dx]),  // in place
                                    .d_addend = c.adds ? at(out[d_addend]) : nullptr,
                                    .sums = at.floats(out[sums]),
                                    .dy = at(out[dx]),
                                    .fixed = c.fixed,
                                    .workspace = workspace},
                                   values);
             },
         .repeats = true});

    const double unit = 1.01 * half_unit(c.dtype);
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < C; ++k) {
      std::vector<double> values = column(x, k, C);
      const std::vector<double> gradient = column(dy, k, C);
      const std::vector<double> added = c.adds ? column(addend, k, C) : std::vector<double>();
      double of_weight = weight[k], of_bias = bias[k];
      const auto result = [&] {
        return plain(values, of_weight, of_bias, added, c.relu,
                     c.fixed ? std::vector{mean[k], variance[k]} : std::vector<double>());
      };
      const auto loss = [&] {
        const std::vector<double> moved = result();
        return std::inner_product(moved.begin(), moved.end(), gradient.begin(), 0.0);
      };
      const std::vector<double> expected = result();
      const double rstd = r[statistics][2 * C + k], step = 1e-7;
      const auto close = [&](double ours, double exact, double error) {
        wrong += !(std::abs(ours - exact) <= std::abs(exact) * unit + error);
      };
      close(r[sums][k], slope_in(of_weight, step, loss), 2e-5 * static_cast<double>(c.rows));
      close(r[sums][C + k], slope_in(of_bias, step, loss), 1e-6 * static_cast<double>(c.rows));
      for (std::size_t row = 0; row < c.rows; ++row) {
        close(r[y][row * C + k], expected[row], 2e-5);
        close(r[dx][row * C + k], slope_in(values[row], step, loss), 1e-4 * std::max(1.0, rstd / 10));
        if (c.adds) close(r[d_addend][row * C + k], c.relu && expected[row] == 0 ? 0 : gradient[row], 0);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the variance of batch norm stays accurate with a large mean") {
  const BatchNormShape shape{1000, 3};
  TypedArray x(DType::f32, 3000, 41);
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x[i] + 3000);
  on_every_device([&](runtime::StreamView stream) {
    std::vector<float> found(9);
    DeviceCopies at(stream);
    batch_norm_statistics(stream, shape, DType::f32, at(found), at(x),
                          at.scratch(batch_norm_workspace_bytes(shape)));
    at.fetch();
    for (std::size_t c = 0; c < 3; ++c) {
      double mean = 0, variance = 0;
      for (std::size_t row = 0; row < 1000; ++row) mean += x[row * 3 + c] / 1000;
      for (std::size_t row = 0; row < 1000; ++row) variance += std::pow(x[row * 3 + c] - mean, 2) / 1000;
      CHECK(found[c] == doctest::Approx(mean).epsilon(1e-7));
      CHECK(found[3 + c] == doctest::Approx(variance).epsilon(1e-4));
    }
  });
}
