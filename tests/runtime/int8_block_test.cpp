#include "runtime/kernels/int8_block.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;

namespace {

constexpr std::array<DType, 2> types = {DType::i8, DType::u8};

/// The centres of equal parts of [0.1, 1] in each of seven decades, in double.
std::vector<double> expected_map(DType dtype) {
  std::vector<double> values = {0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (dtype == DType::i8 ? 1 : 2) << decade;
    for (int part = 0; part < parts; ++part) {
      const double value = (0.1 + 0.9 * (part + 0.5) / parts) * std::pow(10, decade - 6);
      values.push_back(value);
      if (dtype == DType::i8) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  if (dtype == DType::i8) values.front() = -1;
  return values;
}

/// The values, ascending: a block of all indices.
std::vector<float> map_of(DType dtype) {
  Int8Block block{.scale = 1};
  for (std::size_t i = 0; i < block.indices.size(); ++i) block.indices[i] = static_cast<std::uint8_t>(i);
  std::vector<float> map(block.indices.size());
  floats_of_blocks(map.data(), &block, dtype, map.size());
  return map;
}

/// Index of the nearest value, in u8 above 0 unless it is 0. Distances of floats between 2^-24 and 1 are exact in
/// double.
std::uint8_t nearest(DType dtype, const std::vector<float>& map, float value) {
  std::size_t best = dtype == DType::u8 && value > 0 ? 1 : 0;
  for (std::size_t i = best + 1; i < map.size(); ++i)
    if (std::abs(double{map[i]} - double{value}) < std::abs(double{map[best]} - double{value})) best = i;
  return static_cast<std::uint8_t>(best);
}

std::vector<Int8Block> blocks_of(DType dtype, const std::vector<float>& values) {
  std::vector<Int8Block> blocks((values.size() + int8_block_elements - 1) / int8_block_elements);
  blocks_of_floats(blocks.data(), values.data(), dtype, values.size());
  return blocks;
}

std::vector<float> floats_of(DType dtype, const std::vector<Int8Block>& blocks) {
  std::vector<float> values(blocks.size() * int8_block_elements);
  floats_of_blocks(values.data(), blocks.data(), dtype, values.size());
  return values;
}

bool equal(const std::vector<Int8Block>& a, const std::vector<Int8Block>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Int8Block)) == 0;
}

}  // namespace

TEST_CASE("the maps of int8 are the centres of equal parts of decades") {
  for (const DType dtype : types) {
    CAPTURE(to_string(dtype));
    const std::vector<double> expected = expected_map(dtype);
    const std::vector<float> map = map_of(dtype);
    REQUIRE(expected.size() == 256);
    for (std::size_t i = 0; i < 256; ++i)
      CHECK(std::abs(double{map[i]} - expected[i]) <= 2e-7 * std::abs(expected[i]));
  }
}

TEST_CASE("numbers are rounded to the nearest value of the map, at its values, their midpoints and between") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  std::uniform_real_distribution<float> exponent(-9, 0);
  for (const DType dtype : types) {
    CAPTURE(to_string(dtype));
    const std::vector<float> map = map_of(dtype);
    std::vector<float> values = map;
    for (std::size_t i = 1; i < map.size(); ++i) {
      const auto middle = static_cast<float>((double{map[i - 1]} + double{map[i]}) / 2);
      for (const float value : {std::nextafter(middle, -2.0f), middle, std::nextafter(middle, 2.0f)})
        values.push_back(value);
    }
    for (int i = 0; i < 20000; ++i)
      values.push_back((dtype == DType::i8 && random() % 2 == 0 ? -1.0f : 1.0f) *
                       std::pow(10.0f, exponent(random)));
    // The last number of each block is its scale.
    for (const float scale : {1.0f, 0.37f, 3e38f, 1.2e-38f}) {
      CAPTURE(scale);
      std::vector<float> scaled;
      for (const float value : values) {
        scaled.push_back(value * scale);
        if (scaled.size() % int8_block_elements == int8_block_elements - 1) scaled.push_back(scale);
      }
      while (scaled.size() % int8_block_elements != int8_block_elements - 1) scaled.push_back(0);
      scaled.push_back(scale);
      const auto blocks = blocks_of(dtype, scaled);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < scaled.size(); ++i) {
        const Int8Block& block = blocks[i / int8_block_elements];
        wrong += block.scale != scale ||
                 block.indices[i % int8_block_elements] != nearest(dtype, map, scaled[i] * (1 / scale));
      }
      CHECK(wrong == 0);
      const std::vector<float> floats = floats_of(dtype, blocks);
      for (std::size_t i = 0; i < scaled.size(); ++i)
        wrong += floats[i] != map[blocks[i / int8_block_elements].indices[i % int8_block_elements]] * scale;
      CHECK(wrong == 0);
      CHECK(equal(blocks_of(dtype, floats), blocks));
    }
  }
}

TEST_CASE("blocks of drawn numbers keep their bytes when converted to floats and back") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-44, 38);
  for (const DType dtype : types) {
    CAPTURE(to_string(dtype));
    std::vector<float> values(300 * int8_block_elements);
    float scale = 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % int8_block_elements == 0) scale = std::pow(10.0f, exponent(random)) / 8;
      values[i] = normal(random) * scale;
    }
    const auto blocks = blocks_of(dtype, values);
    CHECK(equal(blocks_of(dtype, floats_of(dtype, blocks)), blocks));
  }
}

TEST_CASE("int8 blocks of zeros and of tiny numbers are zero bytes, and the rest of the last block is zero") {
  for (const DType dtype : types) {
    CAPTURE(to_string(dtype));
    for (const float value : {0.0f, -0.0f, 1e-38f}) {
      const auto blocks = blocks_of(dtype, std::vector<float>(int8_block_elements, value));
      CHECK(equal(blocks, std::vector<Int8Block>(1)));
      CHECK(floats_of(dtype, blocks) == std::vector<float>(int8_block_elements, 0.0f));
    }
    const std::vector<float> ones(int8_block_elements + 3, 1.0f);
    const auto blocks = blocks_of(dtype, ones);
    std::vector<float> expected = ones;
    expected.resize(2 * int8_block_elements, 0.0f);
    CHECK(floats_of(dtype, blocks) == expected);
    std::vector<float> some(int8_block_elements + 5, 7.0f);
    floats_of_blocks(some.data(), blocks.data(), dtype, ones.size());
    CHECK(std::equal(ones.begin(), ones.end(), some.begin()));
    CHECK(some[int8_block_elements + 3] == 7.0f);
  }
  std::vector<float> mixed(int8_block_elements, -5.0f);
  mixed[7] = 2.0f;
  CHECK(floats_of(DType::i8, blocks_of(DType::i8, mixed))[0] == -5.0f);
  mixed = floats_of(DType::u8, blocks_of(DType::u8, mixed));
  CHECK(mixed[0] == 0.0f);
  CHECK(mixed[7] == 2.0f);
}

TEST_CASE("an int8 block with a number that is not finite is NaN as a whole") {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : types) {
    for (const float value : {infinity, -infinity, nan, -nan}) {
      CAPTURE(to_string(dtype));
      std::vector<float> values(3 * int8_block_elements, 1.0f);
      values[int8_block_elements + 100] = value;
      const auto blocks = blocks_of(dtype, values);
      const auto floats = floats_of(dtype, blocks);
      for (std::size_t i = 0; i < floats.size(); ++i)
        CHECK(std::isnan(floats[i]) == (i / int8_block_elements == 1));
      CHECK(equal(blocks_of(dtype, floats), blocks));
    }
  }
}
