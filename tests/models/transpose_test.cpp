#include "models/ops/transpose.hpp"
#include "tests/test.hpp"

using namespace ranvier;

namespace {

/// Checks that every element is in its transposed location, and nothing is written between the rows.
template <typename T>
void check_transpose(std::size_t rows, std::size_t columns, std::size_t from_gap, std::size_t to_gap) {
  CAPTURE_ALL(rows, columns);
  const std::size_t from_stride = columns + from_gap, to_stride = rows + to_gap;
  constexpr T untouched = 0xFFFF;
  std::vector<T> from(rows * from_stride), to(columns * to_stride, untouched);
  std::iota(from.begin(), from.end(), T{0});
  std::vector<T> wanted = to;
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      wanted[column * to_stride + row] = from[row * from_stride + column];
  models::transpose(to.data(), to_stride, from.data(), from_stride, rows, columns);
  CHECK(to == wanted);
}

}  // namespace

TEST_CASE("a transposed copy has every element in its location, for any sizes and strides") {
  for (const std::uint64_t seed : test::seeds(400)) {
    std::mt19937_64 random(seed);
    const std::size_t rows = random() % 100, columns = random() % 100;
    check_transpose<std::uint16_t>(rows, columns, random() % 9, random() % 9);
    check_transpose<std::uint32_t>(rows, columns, random() % 9, random() % 9);
  }
  check_transpose<std::uint16_t>(256, 128, 0, 0);
  check_transpose<std::uint32_t>(256, 128, 256, 0);
}
