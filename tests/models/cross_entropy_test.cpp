#include "models/ops/cross_entropy.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

double plain_loss(const TypedArray& logits, std::size_t begin, std::size_t V, std::size_t target) {
  double max = -1e300, sum = 0;
  for (std::size_t i = 0; i < V; ++i) max = std::max(max, logits[begin + i]);
  for (std::size_t i = 0; i < V; ++i) sum += std::exp(logits[begin + i] - max);
  return std::log(sum) + max - logits[begin + target];
}

struct Losses {
  double sum = -1;
  std::vector<double> of_rows;
};

/// Replaces logits by the gradient; both have the factor.
Losses losses_of(runtime::StreamView stream, const CrossEntropyShape& shape, TypedArray& logits,
                 const std::vector<std::int32_t>& targets, double factor = 1) {
  Losses found{.of_rows = std::vector<double>(shape.rows)};
  const auto threads = static_cast<std::size_t>(stream.device().threads());
  DeviceCopies at(stream);
  cross_entropy(stream, shape, logits.dtype(),
                {.logits = at(logits),
                 .targets = at(targets),
                 .loss = at(&found.sum, 1),
                 .loss_factor = factor,
                 .gradient = true,
                 .gradient_factor = static_cast<float>(factor),
                 .row_losses = at(found.of_rows),
                 .exponentials = reinterpret_cast<float*>(at.scratch(threads * shape.stride * sizeof(float)))});
  at.fetch();
  return found;
}

/// Number of correct predictions, by the device.
double count(runtime::StreamView stream, const CrossEntropyShape& shape, DType dtype, const TypedArray& logits,
             const std::vector<std::int32_t>& targets) {
  double correct = -1;
  DeviceCopies at(stream);
  count_correct(stream, shape, dtype, at(&correct, 1), at(logits), at(targets));
  at.fetch();
  return correct;
}

}  // namespace

TEST_CASE("cross entropy and its gradient equal the formula, with any contents of the padding") {
  for (const DType dtype : float_types) {
    for (const std::size_t V : {1, 7, 64, 2500}) {
      CAPTURE_ALL(to_string(dtype), V);
      const std::size_t rows = 13, stride = (V + 63) / 64 * 64;
      TypedArray logits(dtype, rows * stride, 51, 4.0);
      std::vector<std::int32_t> targets;
      std::vector<double> losses;
      for (std::size_t row = 0; row < rows; ++row) {
        targets.push_back(static_cast<std::int32_t>((row * 17) % V));
        for (std::size_t i = V; i < stride; ++i) logits.set(row * stride + i, 1000);
        losses.push_back(plain_loss(logits, row * stride, V, static_cast<std::size_t>(targets[row])));
      }
      const double expected = std::accumulate(losses.begin(), losses.end(), 0.0) / 1000;

      const auto bound = [&](std::size_t row, std::size_t i) {
        const auto target = static_cast<std::size_t>(targets[row]);
        const double p =
            i >= V ? 0 : std::exp(logits[row * stride + i] - logits[row * stride + target] - losses[row]);
        return within((p - (i == target ? 1 : 0)) * 1.024, half_unit(dtype) + (on_gpu_here() ? 3e-6 : 1e-6),
                      i == target           ? 2e-7
                      : dtype == DType::f16 ? 3e-8
                                            : 1e-12);
      };
      std::vector<Bound> bounds;
      for (std::size_t i = 0; i < rows * stride; ++i) bounds.push_back(bound(i / stride, i % stride));
      check_operator(
          {.name = "cross entropy",
           .outputs = {{"gradient", logits, given(bounds)}, {"logits", logits, given(logits)}},
           .call =
               [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
                 double loss = -1, loss_alone = -1;
                 const auto threads = static_cast<std::size_t>(stream.device().threads());
                 CrossEntropyArrays arrays{
                     .logits = at(out[0]),
                     .targets = at(std::as_const(targets)),
                     .loss = at(&loss, 1),
                     .loss_factor = 1e-3,
                     .gradient = true,
                     .gradient_factor = 1e-3f * 1024,
                     .row_losses = reinterpret_cast<double*>(at.scratch(rows * sizeof(double))),
                     .exponentials = reinterpret_cast<float*>(at.scratch(threads * stride * sizeof(float)))};
                 cross_entropy(stream, {rows, V, stride}, dtype, arrays);
                 arrays.logits = at(out[1]);
                 arrays.loss = at(&loss_alone, 1);
                 arrays.gradient = false;
                 cross_entropy(stream, {rows, V, stride}, dtype, arrays);
                 at.fetch();
                 CHECK(loss == doctest::Approx(expected).epsilon(on_gpu_here() ? 6e-7 : 2e-7).scale(1e-3));
                 CHECK(loss == loss_alone);
               },
           .repeats = true});
    }
  }
}

TEST_CASE("rows without a target have no loss, a zero gradient, and do not affect the others") {
  const std::size_t rows = 7, V = 100, stride = 128;
  for (const DType dtype : float_types) {
    TypedArray logits(dtype, rows * stride, 53, 4.0);
    logits.set(2 * stride + 5, NAN);  // in a row without a target
    logits.set(2 * stride + 120, NAN);
    const std::vector<std::int32_t> targets{3, no_target, no_target, 99, 0, no_target, 42};
    on_every_device([&](runtime::StreamView stream) {
      TypedArray d = logits, few(dtype, 4 * stride);
      std::vector<std::int32_t> targets_of_few;
      for (std::size_t row = 0; row < rows; ++row) {
        if (targets[row] == no_target) continue;
        std::copy_n(logits.data(row * stride), stride * size_of(dtype), few.data(targets_of_few.size() * stride));
        targets_of_few.push_back(targets[row]);
      }
      const Losses all = losses_of(stream, {rows, V, stride}, d, targets, 0.25);
      const Losses alone = losses_of(stream, {4, V, stride}, few, targets_of_few, 0.25);
      CHECK(all.sum == doctest::Approx(alone.sum).epsilon(1e-14));
      for (std::size_t row = 0, next = 0; row < rows; ++row) {
        CAPTURE(row);
        if (targets[row] != no_target) {
          CHECK(same_bits(d, row * stride, few, next * stride, stride));
          CHECK(all.of_rows[row] == alone.of_rows[next++]);
        } else {
          CHECK(same_bits(d, row * stride, TypedArray(dtype, stride), 0, stride));
          CHECK(all.of_rows[row] == 0);
        }
      }
    });
  }
}

TEST_CASE("the loss of huge and of tiny logits is finite") {
  TypedArray logits({1e4f, -1e4f, 0.0f, 5.0f, -3e38f, -3e38f, -3e38f, -3e38f});
  on_one_device([&](runtime::StreamView stream) {
    const Losses losses = losses_of(stream, {2, 4, 4}, logits, {1, 2});
    CHECK(losses.of_rows[0] == doctest::Approx(2e4));
    CHECK(losses.of_rows[1] == doctest::Approx(std::log(4.0)));
    CHECK(losses.sum == losses.of_rows[0] + losses.of_rows[1]);
  });
  for (std::size_t i = 0; i < logits.size(); ++i) CHECK(std::isfinite(logits[i]));
}

TEST_CASE("a NaN among the logits makes the loss NaN") {
  for (const std::size_t place : {0, 3, 36}) {
    TypedArray logits(std::vector<float>(37, 1.0f));
    logits.set(place, NAN);
    on_one_device(
        [&](runtime::StreamView stream) { CHECK(std::isnan(losses_of(stream, {1, 37, 37}, logits, {5}).sum)); });
  }
}

TEST_CASE("a target outside the vocabulary fails the stream and is named") {
  for (const std::int32_t bad : {-7, 10}) {
    on_every_device([&](runtime::StreamView stream) {
      TypedArray logits(DType::f32, 3 * 64);
      const Error error = tests::error_of([&] { losses_of(stream, {3, 10, 64}, logits, {1, bad, 2}); });
      CHECK(tests::says(error, ErrorCode::data, "target token " + std::to_string(bad), "vocabulary of 10"));
    });
  }
}

TEST_CASE("correct predictions are rows with the greatest logit at the target, regardless of padding") {
  for (const DType dtype : float_types)
    for (const std::size_t V : {1, 2, 10, 33, 1000})
      for (const std::size_t rows : {1, 45}) {
        CAPTURE_ALL(to_string(dtype), V, rows);
        const std::size_t stride = (V + 63) / 64 * 64;
        TypedArray logits(dtype, rows * stride, 61, 4.0);
        std::vector<std::int32_t> targets;
        int expected = 0;
        for (std::size_t row = 0; row < rows; ++row) {
          for (std::size_t i = V; i < stride; ++i) logits.set(row * stride + i, 1000);
          std::size_t greatest = 0;
          for (std::size_t i = 1; i < V; ++i)
            if (logits[row * stride + i] > logits[row * stride + greatest]) greatest = i;
          const bool hit = row % 3 != 1 || V == 1;
          targets.push_back(static_cast<std::int32_t>(hit ? greatest : (greatest + 1) % V));
          if (hit) ++expected;
        }
        on_every_device([&](runtime::StreamView stream) {
          CHECK(count(stream, {rows, V, stride}, dtype, logits, targets) == expected);
        });
      }
}

TEST_CASE("the first of equal logits is the prediction, and rows without a target or with NaN are not correct") {
  const std::size_t V = 70, stride = 128, rows = 7;
  for (const DType dtype : float_types) {
    CAPTURE(to_string(dtype));
    TypedArray logits(dtype, rows * stride);
    const auto set = [&](std::size_t row, std::size_t i, double value) { logits.set(row * stride + i, value); };
    for (const std::size_t row : {0, 1}) {  // two equal maxima
      set(row, 3, 2);
      set(row, 68, 2);
    }
    set(4, 5, std::numeric_limits<double>::quiet_NaN());
    set(5, 5, std::numeric_limits<double>::infinity());
    set(6, 69, std::numeric_limits<double>::quiet_NaN());
    const std::vector<std::int32_t> targets{3, 68, no_target, static_cast<std::int32_t>(V), 5, 5, 0};
    on_every_device(
        [&](runtime::StreamView stream) { CHECK(count(stream, {rows, V, stride}, dtype, logits, targets) == 2); });
    on_one_device(
        [&](runtime::StreamView stream) { CHECK(count(stream, {0, V, stride}, dtype, logits, {}) == 0); });
  }
}
