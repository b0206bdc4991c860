#include "models/ops/orthogonalize.hpp"

#include "tests/doubles/recording_device.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/models/plain_muon.hpp"
#include "tests/test.hpp"

#include <fmt/format.h>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Case {
  std::size_t rows, columns;
  std::size_t stride = 0;        ///< 0: no gaps
  std::size_t first_column = 0;  ///< column of the wider array
  double deviation = 1;
  float scale = 1;

  [[nodiscard]] std::size_t row() const { return stride != 0 ? stride : columns; }
  [[nodiscard]] bool contains(std::size_t element) const {
    return element % row() >= first_column && element % row() < first_column + columns;
  }
};

/// Orthogonalizes on every device; bits must not depend on the number of threads.
void check_orthogonalize(const Case& c, DType dtype, const TypedArray& before, const Expectation& expected) {
  const auto call = [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
    orthogonalize(stream, at.floats(out[0]) + c.first_column, c.rows, c.columns, c.row(), c.scale, dtype,
                  at.scratch(orthogonalize_workspace(c.rows, c.columns, dtype)));
  };
  check_operator({.name = fmt::format("orthogonalize {} × {} in {}", c.rows, c.columns, to_string(dtype)),
                  .outputs = {{"matrix", before, expected}},
                  .call = call,
                  .repeats = true});
}

}  // namespace

TEST_CASE("orthogonalization equals its definition in double, also of columns of a wider matrix") {
  struct {
    Case c;
    double bf16_error;  // maximum for 60 seeds, rounded up
  } const all[] = {{{1, 1}, 0.006},
                   {{1, 64}, 0.007},
                   {{64, 1}, 0.007},
                   {{3, 5}, 0.05},
                   {{64, 64}, 0.012},
                   {{48, 192}, 0.012},
                   {{192, 48}, 0.012},
                   {{130, 70, 130, 33}, 0.012},
                   {{40, 600, 700}, 0.016},
                   {{16, 24, 0, 0, 1e-3, 2.5f}, 0.022},
                   {{16, 24, 0, 0, 1e15, 1e-30f}, 0.022},
                   {{24, 16, 0, 0, 1e-10}, 0.008}};  // a norm below 1e-7
  for (const auto& [given, bf16_error] : all) {
    const Case& c = given;
    CAPTURE_ALL(c.rows, c.columns, c.stride, c.deviation);
    const TypedArray before(DType::f32, c.rows * c.row(), 71, c.deviation);
    PlainMatrix matrix(c.rows, std::vector<double>(c.columns));
    for (std::size_t i = 0; i < c.rows; ++i)
      for (std::size_t j = 0; j < c.columns; ++j) matrix[i][j] = before[i * c.row() + c.first_column + j];
    const PlainMatrix expected = plain_orthogonalize(matrix);
    const auto scale = static_cast<double>(c.scale);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const double error = (dtype == DType::f32 ? 1e-5 : bf16_error) * scale;
      check_orthogonalize(c, dtype, before, each([&](std::size_t i) {
                            if (!c.contains(i)) return within(before[i], 0);
                            const double value = expected[i / c.row()][i % c.row() - c.first_column];
                            return within(scale * value, 0, error);
                          }));
    }
  }
}

TEST_CASE("weights after twenty steps of Muon equal a transcription of torch.optim.Muon in double") {
  constexpr std::size_t rows = 24, columns = 40;
  constexpr float rate = 0.05f, decay = 0.1f, momentum = 0.95f;
  const TypedArray target(DType::f32, rows * columns, 73);
  const TypedArray first(DType::f32, rows * columns, 74);
  PlainMuon plain(rows, columns);
  PlainMatrix expected(rows, std::vector<double>(columns));
  for (std::size_t i = 0; i < first.size(); ++i) expected[i / columns][i % columns] = first[i];
  for (int step = 0; step < 20; ++step) {
    PlainMatrix gradient = expected;  // the loss is half the squared distance from the target
    for (std::size_t i = 0; i < target.size(); ++i) gradient[i / columns][i % columns] -= target[i];
    plain.step(expected, gradient, static_cast<double>(rate), static_cast<double>(decay),
               static_cast<double>(momentum));
  }
  const auto train = [&](runtime::StreamView stream, DType dtype) {
    std::vector<float> weights(first.size()), average(first.size()), update(first.size());
    std::memcpy(weights.data(), first.data(), first.bytes());
    for (int step = 0; step < 20; ++step) {
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float gradient = weights[i] - static_cast<float>(target[i]);
        average[i] += (1 - momentum) * (gradient - average[i]);
        update[i] = gradient + momentum * (average[i] - gradient);
      }
      DeviceCopies at(stream);
      orthogonalize(stream, at(update), rows, columns, columns, rate * muon_scale(rows, columns), dtype,
                    at.scratch(orthogonalize_workspace(rows, columns, dtype)));
      at.fetch();
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] * (1 - rate * decay) - update[i];
    }
    double error = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
      error = worse(error, std::abs(static_cast<double>(weights[i]) - expected[i / columns][i % columns]));
    return error;
  };
  on_every_device([&](runtime::StreamView stream) {
    CHECK(train(stream, DType::f32) < 5e-6);
    CHECK(train(stream, DType::bf16) < 0.01);
  });
}

TEST_CASE("a zero matrix stays zero, and one without a finite norm becomes NaN") {
  const Case c{.rows = 6, .columns = 10, .stride = 12, .first_column = 1};
  const TypedArray drawn(DType::f32, c.rows * c.row(), 72);
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  struct Value {
    double one, others, result;
  };
  for (const Value& value : {Value{0, 0, 0}, Value{nan, 1, nan}, Value{infinity, 1, nan}, Value{-infinity, 0, nan},
                             Value{1e20, 1, nan}}) {
    CAPTURE_ALL(value.one, value.others);
    TypedArray before = drawn;
    for (std::size_t i = 0; i < before.size(); ++i)
      if (c.contains(i)) before.set(i, value.others);
    before.set(3 * c.row() + 4, value.one);
    for (const DType dtype : {DType::f32, DType::bf16})
      check_orthogonalize(c, dtype, before,
                          each([&](std::size_t i) { return within(c.contains(i) ? value.result : before[i], 0); }));
  }
}

TEST_CASE("orthogonalization refuses an empty matrix, rows that overlap, and fp16") {
  const std::unique_ptr<runtime::Device> device = runtime::make_inline_device();
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  float matrix = 1;
  alignas(64) std::byte workspace[1024];
  const auto error_of = [&](const Case& c, DType dtype) {
    return tests::error_of(
        [&] { orthogonalize(*stream, &matrix, c.rows, c.columns, c.stride, 1, dtype, workspace); });
  };
  for (const Case& c : {Case{0, 3, 3}, Case{3, 0, 3}, Case{2, 3, 2}})
    CHECK(tests::says(error_of(c, DType::f32), ErrorCode::internal,
                      fmt::format("{} × {} elements in rows of {}", c.rows, c.columns, c.stride)));
  CHECK(tests::says(error_of({1, 1, 1}, DType::f16), ErrorCode::internal, "orthogonalize in fp16"));
}

TEST_CASE("the scale of an orthogonalized matrix grows with the root of its longer side") {
  CHECK(muon_scale(64, 256) == doctest::Approx(3.2));
  CHECK(muon_scale(256, 64) == doctest::Approx(3.2));
  CHECK(muon_scale(1, 1) == doctest::Approx(0.2));
}

TEST_CASE("orthogonalization costs its matrix multiplications, and reads its matrix 23 times") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Case& c : {Case{3, 700}, Case{700, 3}, Case{5, 5}}) {
      CAPTURE_ALL(c.rows, c.columns, to_string(dtype));
      tests::RecordingDevice device;
      const auto stream = device.make_stream("test", runtime::StreamWidth::whole);
      std::vector<float> matrix(c.rows * c.columns, 1.0f);
      std::vector<std::byte> workspace(orthogonalize_workspace(c.rows, c.columns, dtype));
      orthogonalize(*stream, matrix.data(), c.rows, c.columns, c.columns, 1, dtype, workspace.data());
      const std::size_t elements = c.rows * c.columns, size = std::min(c.rows, c.columns);
      double flops = 0, bytes = 0;
      for (const auto& work : device.work()) {
        flops += work.cost.flops;
        bytes += work.cost.bytes;
        if (work.cost.flops > 0) CHECK(work.cost.dtype == dtype);
      }
      CHECK(device.work().size() == orthogonalize_launches);
      CHECK(flops == static_cast<double>(20 * elements * size + 10 * size * size * size));
      const std::size_t sums = c.rows * (c.columns > 512 ? 2 : 1);
      CHECK(bytes == static_cast<double>(size_of(dtype) * (20 * elements + 40 * size * size) + 12 * elements +
                                         8 * sums + 16));
    }
  }
}
