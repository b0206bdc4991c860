#include "runtime/base/dtype.hpp"
#include "tests/test.hpp"

using namespace ranvier::runtime;

namespace {

/// Value of a half-precision bit pattern by the definition of the format, in double.
double value_of(std::uint16_t bits, int mantissa_bits, int bias) {
  const int exponent_bits = 15 - mantissa_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double value_of(Bf16 value) { return value_of(value.bits, 7, 127); }
double value_of(F16 value) { return value_of(value.bits, 10, 15); }

/// Values, midpoints between them and their neighbors: all critical points of rounding.
template <typename T>
void check_rounding() {
  for (std::uint32_t pattern = 0; pattern < 0x8000u; ++pattern) {
    const T low{static_cast<std::uint16_t>(pattern)};
    const T high{static_cast<std::uint16_t>(pattern + 1)};
    const float exact = to_float(low);
    if (std::isnan(exact)) {
      CHECK(std::isnan(to_float(from_float<T>(exact))));
      continue;
    }
    REQUIRE(static_cast<double>(exact) == value_of(low));
    REQUIRE(from_float<T>(exact).bits == pattern);
    REQUIRE(from_float<T>(-exact).bits == (pattern | 0x8000u));
    if (!std::isfinite(to_float(high))) continue;
    const auto middle = static_cast<float>((value_of(low) + value_of(high)) / 2);  // one more bit: exact
    const T even = (pattern & 1u) == 0 ? low : high;
    REQUIRE(from_float<T>(middle).bits == even.bits);
    REQUIRE(from_float<T>(std::nextafter(middle, 0.0f)).bits == low.bits);
    REQUIRE(from_float<T>(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits == high.bits);
  }
}

}  // namespace

TEST_CASE("every bf16 value is preserved, and everything between rounds to nearest, ties to even") {
  check_rounding<Bf16>();
}

TEST_CASE(
    "every fp16 value is preserved, subnormals included, and everything between rounds to nearest, ties to even") {
  check_rounding<F16>();
}

TEST_CASE("values become infinity only from half a step beyond the largest finite value") {
  CHECK(to_float(from_float<F16>(65519.996f)) == 65504.0f);
  CHECK(std::isinf(to_float(from_float<F16>(65520.0f))));
  CHECK(std::isinf(to_float(from_float<F16>(std::numeric_limits<float>::max()))));
  CHECK(to_float(from_float<Bf16>(std::bit_cast<float>(0x7f7f7fffu))) == value_of(Bf16{0x7f7f}));
  CHECK(std::isinf(to_float(from_float<Bf16>(std::numeric_limits<float>::max()))));
}

TEST_CASE("NaN stays NaN with any payload") {
  std::mt19937_64 random(ranvier::test::random_seed());
  CAPTURE(ranvier::test::random_seed());
  for (int i = 0; i < 1000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random()) | 0x7f800000u;
    if ((bits & 0x7fffffu) == 0) continue;
    const auto value = std::bit_cast<float>(bits);
    CHECK(std::isnan(to_float(from_float<Bf16>(value))));
    CHECK(std::isnan(to_float(from_float<F16>(value))));
  }
  CHECK(std::isnan(to_float(from_float<Bf16>(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(to_float(from_float<F16>(std::bit_cast<float>(0xff800001u)))));
}

TEST_CASE("arrays of int8 consist of whole blocks, and as many elements fit into bytes as whole blocks have") {
  for (const DType dtype : {DType::i8, DType::u8}) {
    for (const auto& [elements, bytes] : {std::pair{0, 0}, {1, 260}, {256, 260}, {257, 520}, {2560, 2600}})
      CHECK(bytes_of(dtype, static_cast<std::size_t>(elements)) == static_cast<std::size_t>(bytes));
    for (const auto& [bytes, elements] : {std::pair{0, 0}, {259, 0}, {260, 256}, {519, 256}, {2600, 2560}})
      CHECK(elements_in(static_cast<std::size_t>(bytes), dtype) == static_cast<std::size_t>(elements));
  }
  CHECK(bytes_of(DType::bf16, 257) == 514);
  CHECK(elements_in(515, DType::bf16) == 257);
}

TEST_CASE("types, sizes and names of element types agree") {
  CHECK(size_of(DType::f32) == sizeof(float));
  CHECK(size_of(DType::f64) == sizeof(double));
  CHECK(size_of(DType::i32) == sizeof(std::int32_t));
  CHECK(size_of(DType::bf16) == sizeof(Bf16));
  CHECK(size_of(DType::f16) == sizeof(F16));
  CHECK(to_string(DType::bf16) == "bf16");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    CHECK(with_float_type(dtype, []<typename T>(T) { return dtype_of<T>; }) == dtype);
}
