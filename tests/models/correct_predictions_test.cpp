#include "models/ops/cross_entropy.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// Count on the device.
double count(runtime::StreamView stream, const CrossEntropyShape& shape, DType dtype, const TypedArray& logits,
             const std::vector<std::int32_t>& targets) {
  double correct = -1;
  DeviceCopies at(stream);
  count_correct(stream, shape, dtype, at(&correct, 1), at(logits), at(targets));
  at.fetch();
  return correct;
}

}  // namespace

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
