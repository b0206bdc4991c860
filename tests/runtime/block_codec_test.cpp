// Kernels on blocks in 8 and 4 bits against plain loops of their definitions, for all types, layouts and thread counts.
#include "runtime/kernels/block_codec.hpp"

#include "runtime/base/error.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

using namespace ranvier;
using namespace ranvier::runtime;
using ranvier::tests::Bench;

namespace {

constexpr std::size_t block = code_block_elements;
constexpr BlockCode codes[] = {BlockCode::int8, BlockCode::int4};

/// Blocks of ordinary numbers of different sizes, zeros, tiny numbers, and some that are not finite.
template <typename T>
std::vector<T> drawn_blocks(std::size_t blocks, std::mt19937_64& random, bool finite = false) {
  std::normal_distribution<float> normal;
  const int smallest = std::is_same_v<T, F16> ? -26 : -120, largest = std::is_same_v<T, F16> ? 12 : 120;
  std::uniform_int_distribution<int> exponent(smallest, largest);
  std::vector<T> values;
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto kind = random() % 16;
    const float size = std::ldexp(1.0f, exponent(random));
    for (std::size_t i = 0; i < block; ++i) {
      float value = kind == 0 ? 0 : kind == 1 ? static_cast<float>(random() % 3) * size : normal(random) * size;
      if (!finite && kind == 2 && random() % 100 == 0)
        value =
            random() % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
      values.push_back(from_float<T>(value));
    }
  }
  return values;
}

struct PlainBlock {
  float scale = 0;
  std::vector<int> q = std::vector<int>(block);
};

template <typename T>
PlainBlock encoded(BlockCode code, const T* values) {
  PlainBlock made;
  double largest = 0;
  for (std::size_t i = 0; i < block; ++i) {
    const double size = std::fabs(to_float(values[i]));
    if (!std::isfinite(size)) return made.scale = std::numeric_limits<float>::quiet_NaN(), made;
    largest = std::max(largest, size);
  }
  int exponent = 0;
  const double fraction =
      std::frexp(static_cast<float>(largest) / (code == BlockCode::int8 ? 127.0f : 7.0f), &exponent);
  made.scale = static_cast<float>(std::ldexp(std::floor(fraction * 0x1p17 + 0.5), exponent - 17));
  if (made.scale < 0x1p-117f) return made.scale = 0, made;
  for (std::size_t i = 0; i < block; ++i)
    made.q[i] = static_cast<int>(std::nearbyint(static_cast<double>(to_float(values[i])) * (1.0f / made.scale)));
  return made;
}

template <typename T>
std::vector<std::uint8_t> bytes_of_blocks(BlockCode code, const std::vector<T>& values) {
  std::vector<std::uint8_t> bytes(coded_bytes(code, values.size()));
  for (std::size_t b = 0; b < values.size() / block; ++b) {
    const PlainBlock plain = encoded(code, values.data() + b * block);
    std::uint8_t* const to = bytes.data() + b * code_block_bytes(code);
    std::memcpy(to, &plain.scale, 4);
    for (std::size_t i = 0; i < block; ++i) {
      if (code == BlockCode::int8)
        to[4 + i] = static_cast<std::uint8_t>(plain.q[i]);
      else
        to[4 + i % 128] |= static_cast<std::uint8_t>((plain.q[i] & 15) << (i < 128 ? 0 : 4));
    }
  }
  return bytes;
}

template <typename T>
std::vector<float> decoded(BlockCode code, const std::vector<T>& values) {
  std::vector<float> made;
  for (std::size_t b = 0; b < values.size() / block; ++b) {
    const PlainBlock plain = encoded(code, values.data() + b * block);
    for (const int q : plain.q) made.push_back(static_cast<float>(q) * plain.scale);
  }
  return made;
}

/// Equal bits, or both NaN.
template <typename T>
bool same(const std::vector<T>& left, const std::vector<T>& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(to_float(left[i])) && std::isnan(to_float(right[i]))) continue;
    if (std::memcmp(&left[i], &right[i], sizeof(T)) != 0) return false;
  }
  return true;
}

/// Array of n numbers in runs of two blocks, with gaps of one, that starts at its second block.
constexpr StridedLayout in_runs{.run = 2 * block, .stride = 3 * block, .first = block};

template <typename T>
std::vector<T> spread(const std::vector<T>& values, T gap) {
  std::vector<T> all(values.empty() ? 0 : in_runs.at(values.size() - 1) + 1 + block, gap);
  for (std::size_t i = 0; i < values.size(); ++i) all[in_runs.at(i)] = values[i];
  return all;
}

/// Calls check(bench, code, values, random).
template <typename T, typename Check>
void for_all_blocks(Check check) {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  for (const int threads : {1, 3}) {
    Bench bench(threads);
    for (const BlockCode code : codes)
      for (const std::size_t blocks : {0u, 1u, 2u, 7u, 9u, 130u, 1001u}) {
        CAPTURE_ALL(threads, to_string(code), blocks);
        check(bench, code, drawn_blocks<T>(blocks, random), random);
      }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("encoded blocks have a scale and the nearest integers, and decode to their product", T, float,
                   Bf16, F16) {
  for_all_blocks<T>([](Bench& bench, BlockCode code, const std::vector<T>& values, std::mt19937_64&) {
    const std::size_t n = values.size();
    const auto expected = bytes_of_blocks(code, values);
    std::vector<T> rounded;
    for (const float value : decoded(code, values)) rounded.push_back(from_float<T>(value));
    const T gap = from_float<T>(3);
    for (const bool strided : {false, true}) {
      const StridedLayout runs = strided ? in_runs : StridedLayout{};
      const auto from = bench.place(strided ? spread(values, gap) : values);
      const auto bytes = bench.place(std::vector<std::uint8_t>(expected.size() + 4, 7));
      encode_blocks(*bench.stream, code, bytes.data(), from.data(), dtype_of<T>, n, runs);
      auto found = bytes.read();
      CHECK(found.back() == 7);
      found.resize(expected.size());
      std::size_t wrong = 0;
      for (std::size_t b = 0; b < n / block; ++b) {
        const std::size_t at = b * code_block_bytes(code);
        float scale = 0;
        std::memcpy(&scale, found.data() + at, 4);
        const std::size_t compared = std::isnan(scale) ? 4 : 0;  // bits of NaN are not defined
        wrong += compared == 4 && !std::isnan(encoded(code, values.data() + b * block).scale);
        wrong += std::memcmp(found.data() + at + compared, expected.data() + at + compared,
                             code_block_bytes(code) - compared) != 0;
      }
      CHECK(wrong == 0);
      const auto to = bench.place(strided ? spread(std::vector<T>(n), gap) : std::vector<T>(n));
      decode_blocks(*bench.stream, code, to.data(), dtype_of<T>, bytes.data(), n, runs);
      CHECK(same(to.read(), strided ? spread(rounded, gap) : rounded));
      round_to_blocks(*bench.stream, code, from.data(), dtype_of<T>, n, runs);
      CHECK(same(from.read(), strided ? spread(rounded, gap) : rounded));
    }
  });
}

TEST_CASE_TEMPLATE("decoded numbers are encoded to the same bytes", T, float, Bf16, F16) {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const Bench bench;
  for (const BlockCode code : codes) {
    CAPTURE(to_string(code));
    std::vector<T> values = drawn_blocks<T>(4000, random, true);
    if constexpr (std::is_same_v<T, F16>) {
      for (std::uint16_t largest = 1; largest < 2048; ++largest)  // subnormal numbers and the smallest normal ones
        for (std::size_t i = 0; i < block; ++i)
          values.push_back(F16{static_cast<std::uint16_t>(i == 0 ? largest : random() % (largest + 1))});
    }
    const auto array = bench.place(values);
    std::vector<std::uint8_t> once, twice;
    for (auto* const bytes : {&once, &twice}) {
      const auto coded = bench.place(std::vector<std::uint8_t>(coded_bytes(code, values.size())));
      encode_blocks(*bench.stream, code, coded.data(), array.data(), dtype_of<T>, values.size());
      decode_blocks(*bench.stream, code, array.data(), dtype_of<T>, coded.data(), values.size());
      *bytes = coded.read();
    }
    CHECK(once == twice);
  }
}

TEST_CASE_TEMPLATE("decoded numbers are added in the order of the arrays, and rounded once", T, float, Bf16, F16) {
  for_all_blocks<T>([](Bench& bench, BlockCode code, const std::vector<T>& values, std::mt19937_64& random) {
    const std::size_t n = values.size();
    if (n > 200 * block) return;
    for (const std::size_t arrays : {1u, 2u, 5u}) {
      for (const std::size_t skipped : {std::size_t{0}, std::size_t{1}, arrays}) {
        std::vector<T> others;
        std::vector<float> sums;
        for (const T& value : values) sums.push_back(to_float(value));
        for (std::size_t a = 0; a < arrays; ++a) {
          const auto array = drawn_blocks<T>(n / block, random);
          others.insert(others.end(), array.begin(), array.end());
          if (a == skipped) continue;
          const auto added = decoded(code, array);
          for (std::size_t i = 0; i < n; ++i) sums[i] += added[i];
        }
        std::vector<T> expected;
        for (const float sum : sums) expected.push_back(from_float<T>(sum));
        const auto coded = bench.place(bytes_of_blocks(code, others));
        for (const bool strided : {false, true}) {
          const T gap = from_float<T>(3);
          const auto to = bench.place(strided ? spread(values, gap) : values);
          add_blocks(*bench.stream, code, to.data(), dtype_of<T>, coded.data(), arrays, skipped, n,
                     strided ? in_runs : StridedLayout{});
          CHECK(same(to.read(), strided ? spread(expected, gap) : expected));
        }
      }
    }
  });
}

TEST_CASE("errors are at most half a scale; a number that is not finite makes its block NaN, and no other") {
  const Bench bench;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<float> uniform(-3, 3);
  std::vector<float> values(3 * block);
  for (float& value : values) value = uniform(random);
  for (const BlockCode code : codes) {
    for (const std::optional<float> odd :
         {std::optional<float>(), std::optional(std::numeric_limits<float>::infinity()),
          std::optional(-std::numeric_limits<float>::infinity()),
          std::optional(std::numeric_limits<float>::quiet_NaN())}) {
      std::vector<float> given = values;
      if (odd) given[block + 100] = *odd;
      const auto array = bench.place(given);
      round_to_blocks(*bench.stream, code, array.data(), DType::f32, given.size());
      const auto rounded = array.read();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < given.size(); ++i) {
        const bool is_odd = odd && i / block == 1;
        const float half_scale = 3.0f / (code == BlockCode::int8 ? 127 : 7) / 2 * 1.001f;
        wrong += is_odd ? !std::isnan(rounded[i]) : !(std::fabs(rounded[i] - given[i]) <= half_scale);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("arrays that are not in blocks are refused") {
  const Bench bench;
  const auto array = bench.place(std::vector<float>(4 * block));
  const auto bytes = bench.place(std::vector<std::uint8_t>(4 * block));
  const auto refused = [&](std::size_t n, const StridedLayout& runs) {
    CHECK_THROWS_WITH_AS(
        encode_blocks(*bench.stream, BlockCode::int8, bytes.data(), array.data(), DType::f32, n, runs),
        doctest::Contains("not in blocks of 256"), Error);
  };
  refused(block + 1, {});
  refused(block, {.run = block / 2, .stride = block});
  refused(block, {.run = block, .stride = block + 16});
  refused(block, {.run = block, .stride = 2 * block, .first = 16});
  CHECK_THROWS_WITH_AS(
      encode_blocks(*bench.stream, BlockCode::int8, bytes.data(), array.data() + 1, DType::f32, block),
      doctest::Contains("not aligned to 16 bytes"), Error);
}
