#include "models/ops/attention.hpp"

#include "models/ops/attention_cpu.hpp"
#include "models/ops/attention_math.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_attention.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

double worst_error(const TypedArray& values, const Doubles& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) worst = worse(worst, std::abs(values[i] - expected[i]));
  return worst;
}

/// The distinct implementations on this device; a GPU has one.
std::vector<AttentionArithmetic> arithmetics() {
  if (on_gpu_here()) return {AttentionArithmetic::quickest};
  return {AttentionArithmetic::quickest, AttentionArithmetic::vectors, AttentionArithmetic::floats};
}

/// With this number of threads on a CPU.
AttentionRun run(AttentionRun passes, const Dropout& dropout, int threads,
                 AttentionArithmetic arithmetic = AttentionArithmetic::quickest, const HostBounds& bounds = {}) {
  on_one_device([&](runtime::StreamView stream) {
    if (on_gpu_here()) return passes.run(stream, dropout, bounds);
    // The contents of the workspace must not matter.
    std::vector<std::byte> workspace(attention_workspace_bytes(passes.shape, passes.dtype, threads),
                                     std::byte{0xff});
    DeviceCopies at(stream);  // on a CPU these are the host's arrays
    const AttentionArrays arrays = passes.arrays(at, workspace.data(), dropout, bounds);
    runtime::ComputePool pool(threads);
    attention_forward_cpu(pool, passes.shape, passes.dtype, arrays, arithmetic);
    std::fill(workspace.begin(), workspace.end(), std::byte{0xff});
    attention_backward_cpu(pool, passes.shape, passes.dtype, arrays, arithmetic);
  });
  return passes;
}

Dropout some_dropout(float rate) {
  return {.rate = rate, .key = runtime::philox_key(5, runtime::RandomPurpose::dropout), .first_sample = 3};
}

/// AttentionBounds of documents with `length` positions, more in later samples.
HostBounds documents(const AttentionShape& shape, int length, bool with_ends) {
  HostBounds bounds;
  for (int b = 0; b < shape.samples; ++b)
    for (int i = 0; i < shape.positions; ++i) {
      const int of_sample = length + 3 * b, first = i / of_sample * of_sample;
      bounds.first_key.push_back(first);
      if (with_ends) bounds.end_key.push_back(std::min(first + of_sample, shape.positions));
    }
  return bounds;
}

/// Bounds in which the last `padding` positions of a sample are visible only to themselves.
HostBounds padded(const AttentionShape& shape, int padding) {
  HostBounds bounds;
  for (int b = 0; b < shape.samples; ++b)
    for (int i = 0; i < shape.positions; ++i) {
      const int end = shape.positions - padding;
      bounds.first_key.push_back(i < end ? 0 : i);
      bounds.end_key.push_back(i < end ? end : i + 1);
    }
  return bounds;
}

void check_against_plain(const AttentionShape& shape, DType dtype, float rate, AttentionArithmetic arithmetic,
                         const HostBounds& bounds = {}) {
  CAPTURE_ALL(to_string(dtype), shape.positions, shape.heads, shape.channels, shape.key_heads, shape.causal,
              shape.window, rate);
  const AttentionRun inputs(shape, dtype, 1);
  const Dropout dropout = some_dropout(rate);
  const PlainAttention plain{shape, dropout, bounds};
  Doubles out, logsumexp;
  plain.forward(doubles(inputs.qkv), out, logsumexp);
  const Doubles d_qkv = plain.backward(doubles(inputs.qkv), doubles(inputs.d_out));

  const AttentionRun results = run(inputs, dropout, 2, arithmetic, bounds);
  const double tolerance = dtype == DType::f32 ? (on_gpu_here() ? 2e-6 : 1e-6) : 1.5 * half_unit(dtype);
  CHECK(relative_error(results.out, out) < tolerance);
  CHECK(worst_error(results.out, out) < 10 * tolerance);
  CHECK(worst_error(results.logsumexp, logsumexp) < (on_gpu_here() ? 1e-5 : 2e-6));
  CHECK(relative_error(results.d_qkv, d_qkv) < 2 * tolerance);
  CHECK(worst_error(results.d_qkv, d_qkv) < 40 * tolerance);
}

}  // namespace

TEST_CASE("the plain attention's gradients equal finite differences") {
  const AttentionShape causal{.samples = 2, .positions = 5, .heads = 2, .channels = 3};
  AttentionShape grouped = causal, of_all = causal;
  grouped.key_heads = 1, grouped.window = 3;
  of_all.causal = false;
  for (const PlainAttention& plain : {PlainAttention{causal, some_dropout(0)},
                                      {causal, some_dropout(0.3f)},
                                      {grouped, some_dropout(0)},
                                      {of_all, some_dropout(0), padded(of_all, 2)}}) {
    const AttentionShape& shape = plain.shape;
    const AttentionRun inputs(shape, DType::f32, 7);
    const Doubles d_out = doubles(inputs.d_out);
    Doubles qkv = doubles(inputs.qkv), out, logsumexp;
    const Doubles d_qkv = plain.backward(qkv, d_out);
    const auto loss = [&] {
      plain.forward(qkv, out, logsumexp);
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * d_out[i];
      return sum;
    };
    for (std::size_t i = 0; i < qkv.size(); ++i)
      CHECK(d_qkv[i] == doctest::Approx(slope_in(qkv[i], 1e-5, loss)).epsilon(1e-6));
  }
}

TEST_CASE("attention equals its definition for any length and width") {
  ranvier::tests::Share share(on_gpu_here() ? 3 : 1, 8);
  for (const DType dtype : float_types)
    for (const auto arithmetic : arithmetics()) {
      for (const int positions : {1, 2, 7, 16, 33, 64, 100, 257}) {
        if (!share.takes()) continue;
        check_against_plain({.samples = 1, .positions = positions, .heads = 2, .channels = 16}, dtype, 0,
                            arithmetic);
      }
      for (const int channels : {1, 3, 8, 20, 64, 80, 128}) {
        if (!share.takes()) continue;
        check_against_plain({.samples = 2, .positions = 70, .heads = 2, .channels = channels}, dtype, 0,
                            arithmetic);
      }
    }
}

TEST_CASE("attention drops the weights that the counters select") {
  ranvier::tests::Share share(on_gpu_here() ? 2 : 1, 2);
  for (const DType dtype : float_types)
    for (const int positions : {1, 7, 64, 70, 129}) {
      if (!share.takes()) continue;
      check_against_plain({.samples = 2, .positions = positions, .heads = 3, .channels = 8}, dtype, 0.25f,
                          AttentionArithmetic::quickest);
    }
}

TEST_CASE("attention equals its definition with shared key heads, windows, documents and padding") {
  ranvier::tests::Share share(on_gpu_here() ? 9 : 3, 30);
  for (const DType dtype : float_types)
    for (const auto arithmetic : arithmetics())
      for (const auto& [heads, key_heads, positions, channels] :
           {std::tuple{4, 2, 150, 8}, {3, 1, 67, 5}, {2, 2, 131, 20}, {2, 1, 70, 72}}) {
        AttentionShape shape{
            .samples = 2, .positions = positions, .heads = heads, .channels = channels, .key_heads = key_heads};
        const auto check = [&](const AttentionShape& of, const HostBounds& bounds, float rate = 0) {
          if (share.takes()) check_against_plain(of, dtype, rate, arithmetic, bounds);
        };
        check(shape, {});
        check(shape, documents(shape, 21, false));
        check(shape, documents(shape, 70, false), 0.25f);
        for (const int window : {1, 30, 64, 100}) {
          shape.window = window;
          check(shape, {});
        }
        check(shape, documents(shape, 80, true));
        shape.window = 0;
        shape.causal = false;
        check(shape, {});
        check(shape, {}, 0.25f);
        check(shape, documents(shape, 37, true));
        check(shape, padded(shape, 19));
      }
}

TEST_CASE("attention with bounds and windows that hide nothing has the bits of attention without them") {
  const int positions = on_gpu_here() ? 70 : 150;
  AttentionShape shape{.samples = 1, .positions = positions, .heads = 2, .channels = 16};
  for (const DType dtype : float_types) {
    for (const bool causal : {true, false}) {
      shape.causal = causal;
      const auto of = [&](int window, const HostBounds& bounds) {
        AttentionRun inputs(shape, dtype, 23);
        inputs.shape.window = window;
        return run(inputs, {}, 2, AttentionArithmetic::quickest, bounds);
      };
      const AttentionRun without = of(0, {});
      CHECK(same_bits(of(0, documents(shape, positions, true)), without));
      if (causal) CHECK(same_bits(of(positions, {}), without));
    }
  }
}

TEST_CASE("attention refuses heads that do not divide, windows that look ahead, and on a CPU unordered bounds") {
  on_one_device([](runtime::StreamView stream) {
    float memory[64] = {};
    const AttentionArrays arrays{.qkv = memory, .out = memory, .logsumexp = memory};
    const auto refuses = [&](const AttentionShape& shape) {
      CHECK_THROWS_AS(attention_forward(stream, shape, DType::f32, arrays), Error);
    };
    refuses({.positions = 2, .heads = 3, .key_heads = 2});
    refuses({.positions = 2, .heads = 2, .key_heads = 4});
    refuses({.positions = 2, .causal = false, .window = 1});
  });
  runtime::ComputePool pool(1);
  float memory[64] = {};
  for (const auto& [first, end] :
       {std::pair{std::vector<std::int32_t>{0, 2, 2}, std::vector<std::int32_t>{3, 3, 3}},
        {{0, 1, 0}, {3, 3, 3}},
        {{-1, 0, 0}, {3, 3, 3}},
        {{0, 0, 0}, {3, 2, 3}},
        {{0, 0, 0}, {3, 3, 4}},
        {{0, 0, 0}, {1, 2, 2}}}) {
    const AttentionArrays arrays{
        .qkv = memory, .out = memory, .logsumexp = memory, .bounds = {first.data(), end.data()}};
    CHECK_THROWS_AS(attention_forward_cpu(pool, {.positions = 3}, DType::f32, arrays), Error);
  }
}

TEST_CASE("attention has the same bits for any number of threads") {
  AttentionShape shape{.samples = 2, .positions = 150, .heads = 3, .channels = 16};
  ranvier::tests::Share share(on_gpu_here() ? 2 : 1, 1);
  for (const DType dtype : float_types)
    for (const float rate : {0.0f, 0.1f}) {
      if (!share.takes()) continue;
      shape.key_heads = rate == 0 ? 1 : 3;
      const AttentionRun inputs(shape, dtype, 11), one = run(inputs, some_dropout(rate), 1);
      for (const int threads : {2, 3}) CHECK(same_bits(one, run(inputs, some_dropout(rate), threads)));
    }
}

TEST_CASE("attention computes a sample with the same bits, in a microbatch of any size") {
  // With 16 samples threads do not share heads, with one sample they share all of them.
  const AttentionShape plain{.samples = on_gpu_here() ? 10 : 16, .positions = 90, .heads = 2, .channels = 20};
  AttentionShape grouped = plain;
  grouped.key_heads = 1;
  ranvier::tests::Share share(1, 1);
  for (const DType dtype : float_types)
    for (const auto& [shape, bounds] : {std::pair{plain, HostBounds{}}, {grouped, documents(grouped, 25, true)}}) {
      if (!share.takes()) continue;
      const Dropout dropout = some_dropout(0.1f);
      const AttentionRun all =
          run(AttentionRun(shape, dtype, 13), dropout, 2, AttentionArithmetic::quickest, bounds);
      AttentionShape alone = shape;
      alone.samples = 1;
      for (const std::size_t b : {0, 9}) {
        const std::size_t n = elements_of(alone), n_qkv = 90 * alone.row_channels(), rows = 2 * 90;
        AttentionRun one(alone, dtype);
        std::copy_n(all.qkv.data(n_qkv * b), n_qkv * size_of(dtype), one.qkv.data());
        std::copy_n(all.d_out.data(n * b), n * size_of(dtype), one.d_out.data());
        Dropout its_own = dropout;
        its_own.first_sample += static_cast<std::int64_t>(b);
        HostBounds its_bounds;
        if (!bounds.first_key.empty()) {
          const auto of_sample = static_cast<std::ptrdiff_t>(90 * b);
          its_bounds.first_key.assign(bounds.first_key.begin() + of_sample,
                                      bounds.first_key.begin() + of_sample + 90);
          its_bounds.end_key.assign(bounds.end_key.begin() + of_sample, bounds.end_key.begin() + of_sample + 90);
        }
        one = run(std::move(one), its_own, 2, AttentionArithmetic::quickest, its_bounds);
        CHECK(same_bits(one.out, 0, all.out, b * n, n));
        CHECK(same_bits(one.logsumexp, 0, all.logsumexp, b * rows, rows));
        CHECK(same_bits(one.d_qkv, 0, all.d_qkv, b * n_qkv, n_qkv));
      }
    }
}

TEST_CASE("attention handles large scores and propagates NaN") {
  const AttentionShape shape{.samples = 1, .positions = 130, .heads = 1, .channels = 16};
  for (const DType dtype : float_types) {
    AttentionRun inputs(shape, dtype, 17);
    for (std::size_t i = 0; i < inputs.qkv.size(); ++i) inputs.qkv.set(i, 20 * inputs.qkv[i]);
    AttentionRun results = run(inputs, {}, 1);
    bool finite = true;
    for (std::size_t i = 0; i < results.d_qkv.size(); ++i) finite = finite && std::isfinite(results.d_qkv[i]);
    for (std::size_t i = 0; i < results.out.size(); ++i) finite = finite && std::isfinite(results.out[i]);
    CHECK(finite);

    inputs.qkv.set(100 * 48 + 5, std::nan(""));  // query 100
    results = run(inputs, {}, 1);
    CHECK(std::isnan(results.out[100 * 16]));
    CHECK(std::isfinite(results.out[99 * 16]));
    CHECK(std::isfinite(results.out[101 * 16]));
    CHECK(std::isnan(results.d_qkv[100 * 48]));
  }
}

TEST_CASE("powers of two and logarithms are accurate to a few units in the last place") {
  for (double x = -126; x < 20; x += 0.00137) {
    const float argument = static_cast<float>(x);
    const double power = std::exp2(static_cast<double>(argument));
    REQUIRE(std::abs(models::exp2(simd::broadcast(argument))[0] / power - 1) < 3e-7);
    const float positive = static_cast<float>(power);
    const double logarithm = std::log(static_cast<double>(positive));
    REQUIRE(std::abs(models::log(simd::broadcast(positive))[0] - logarithm) < 2e-7 + 2e-7 * std::abs(logarithm));
  }
  CHECK(models::exp2(simd::broadcast(-INFINITY))[0] == 0);
  CHECK(models::exp2(simd::broadcast(-1000.0f))[0] == 0);
  CHECK(std::isnan(models::exp2(simd::broadcast(NAN))[0]));
  CHECK(std::isnan(models::log(simd::broadcast(NAN))[0]));
  CHECK(models::exp2(simd::Floats{})[0] == 1);
  CHECK(models::log(simd::broadcast(1.0f))[0] == 0);
}

TEST_CASE("attention runs on a device's stream") {
  const AttentionShape shape{.samples = 2, .positions = 40, .heads = 2, .channels = 16};
  const AttentionRun inputs(shape, DType::f32, 19), expected = run(inputs, {}, 1);
  on_every_device([&](runtime::StreamView stream) {
    AttentionRun passes = inputs;
    passes.run(stream);
    CHECK(same_bits(passes, expected));
  });
}
