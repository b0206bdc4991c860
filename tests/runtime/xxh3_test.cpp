#include "runtime/files/xxh3.hpp"
#include "tests/test.hpp"

using ranvier::runtime::xxh3;

TEST_CASE("xxh3 gives the numbers of the xxHash library on every processor") {
  std::vector<std::byte> bytes(1'000'003);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * i + 7 * i) % 251);
  const std::span<const std::byte> all(bytes);
  CHECK(xxh3({}) == 0x2d06800538d394c2u);
  CHECK(xxh3(all.first(1)) == 0xc44bdff4074eecdbu);
  CHECK(xxh3(all.first(100)) == 0x2339e010058ae1dfu);
  CHECK(xxh3(all.first(5000)) == 0x6cce044fb9d3e753u);
  CHECK(xxh3(all) == 0x8584773ea8c750dcu);
  CHECK(xxh3(std::vector(bytes)) == xxh3(all));  // at any alignment
}
