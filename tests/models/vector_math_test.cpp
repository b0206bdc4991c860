#include "models/ops/vector_philox.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

/// The worst relative error at first, first + step, …, last.
template <typename Vectorized, typename Exact>
double worst_error(double first, double last, double step, Vectorized vectorized, Exact exact) {
  double worst = 0;
  for (double at = first; at <= last; at += step) {
    const auto x = static_cast<float>(at);
    const double expected = exact(static_cast<double>(x));
    worst = worse(worst, std::abs(static_cast<double>(vectorized(simd::broadcast(x))[0]) - expected) / expected);
  }
  return worst;
}

}  // namespace

TEST_CASE("vectorized exponentials and powers of two are within two units, and for half precision within 4e-6") {
  const auto exp = [](double x) { return std::exp(x); };
  const auto exp2 = [](double x) { return std::exp2(x); };
  CHECK(worst_error(-86.89, 88.72, 1.7e-4, [](auto x) { return simd::exp(x); }, exp) < 2 * 0x1p-24);
  CHECK(worst_error(-125, 125, 3.1e-4, [](auto x) { return simd::exp2(x); }, exp2) < 2 * 0x1p-24);
  CHECK(worst_error(-125, 125, 3.1e-4, [](auto x) { return simd::exp2_for_half(x); }, exp2) < 4e-6);
}

TEST_CASE("the power of two for half precision reaches almost zero and NaN") {
  const auto exp2 = [](float x) { return simd::exp2_for_half(simd::broadcast(x))[simd::lanes - 1]; };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(exp2(0.0f) == 1.0f);
  for (const float x : {-125.5f, -126.0f, -150.0f, -1e30f, -infinity}) {
    CHECK(exp2(x) >= 0.0f);
    CHECK(exp2(x) < 0x1p-124f);
  }
  if (simd::lanes == 16) CHECK(exp2(-infinity) == 0.0f);
  CHECK(std::isnan(exp2(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("the vectorized exponential reaches zero, infinity and NaN") {
  const auto exp = [](float x) { return simd::exp(simd::broadcast(x))[simd::lanes - 1]; };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(exp(0.0f) == 1.0f);
  CHECK(exp(-0.0f) == 1.0f);
  CHECK(exp(-87.0f) == 0.0f);
  CHECK(exp(-1e30f) == 0.0f);
  CHECK(exp(-infinity) == 0.0f);
  CHECK(exp(88.8f) == infinity);
  CHECK(exp(infinity) == infinity);
  CHECK(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("registers widen every half-precision value like single conversions") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const runtime::Bf16 bf16{static_cast<std::uint16_t>(bits)};
    const runtime::F16 f16{static_cast<std::uint16_t>(bits)};
    const float a = simd::load(&bf16, 1)[0], b = simd::load(&f16, 1)[0];
    const bool same_a = std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(runtime::to_float(bf16));
    const float expected = runtime::to_float(f16);
    const bool same_b =
        std::isnan(expected) ? std::isnan(b) : b == expected && std::signbit(b) == std::signbit(expected);
    if (!same_a || !same_b) FAIL("bits ", bits);
  }
}

TEST_CASE("registers round to half precision like single conversions") {
  const auto check = [](std::uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    runtime::Bf16 bf16;
    runtime::F16 f16;
    simd::store(&bf16, simd::broadcast(value), 1);
    simd::store(&f16, simd::broadcast(value), 1);
    if (std::isnan(value)) return std::isnan(runtime::to_float(bf16)) && std::isnan(runtime::to_float(f16));
    const bool subnormal = value != 0 && std::abs(value) < std::numeric_limits<float>::min();
    return (subnormal || bf16.bits == runtime::from_float<runtime::Bf16>(value).bits) &&
           f16.bits == runtime::from_float<runtime::F16>(value).bits;
  };
  for (const std::uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f801000u, 0x3f803000u, 0x7f7fffffu, 0x477fefffu,
                                   0x477ff000u, 0x33000000u, 0x33000001u, 0x7fc00000u, 0x7f800001u}) {
    CAPTURE(bits);
    CHECK(check(bits));
  }
  for (std::uint64_t bits = 0; bits < 0x100000000u; bits += 9973)
    if (!check(static_cast<std::uint32_t>(bits))) FAIL("bits ", bits);
}

TEST_CASE("partial loads fill up with zeros and partial stores change no other element") {
  float values[2 * simd::lanes];
  for (std::size_t i = 0; i < 2 * simd::lanes; ++i) values[i] = static_cast<float>(i + 1);
  for (std::size_t count = 1; count <= simd::lanes; ++count) {
    const simd::Floats loaded = simd::load(values + 1, count);
    float to[2 * simd::lanes] = {};
    simd::store(to + 1, simd::broadcast(-1.0f), count);
    for (std::size_t i = 0; i < simd::lanes; ++i) {
      CHECK(loaded[i] == (i < count ? static_cast<float>(i + 2) : 0.0f));
      CHECK(to[i + 1] == (i < count ? -1.0f : 0.0f));
    }
    CHECK(to[0] == 0.0f);
  }
}

TEST_CASE("a register reduces to the sum and the maximum of its lanes") {
  simd::Floats value{};
  float sum = 0;
  for (std::size_t i = 0; i < simd::lanes; ++i) {
    value[i] = static_cast<float>((i * 7) % simd::lanes) - 3.0f;
    sum += value[i];
  }
  CHECK(simd::sum(value) == sum);
  CHECK(simd::max(value) == static_cast<float>(simd::lanes) - 4.0f);
}

TEST_CASE("registers draw the same random numbers as single calls, in their order") {
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{0xfffffffd}, std::uint64_t{0x123456789abc}}) {
    const auto words = simd::philox({7, 8}, first, 9, 10);
    const auto in_order = simd::in_counter_order(words);
    for (std::size_t i = 0; i < simd::lanes; ++i) {
      const std::uint64_t counter = first + i;
      const auto expected = runtime::philox(
          {7, 8}, {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 9, 10});
      for (std::size_t w = 0; w < 4; ++w) {
        CHECK(words[w][i] == expected[w]);
        CHECK(in_order[(4 * i + w) / simd::lanes][(4 * i + w) % simd::lanes] == expected[w]);
        CHECK(simd::uniform(words[w])[i] == runtime::uniform(expected[w]));
      }
    }
  }
}
