#include "offload/block_checksums.hpp"

#include "tests/offload/blocks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;

namespace {

/// Checksums of a file of zeros, with their memory.
struct Sums {
  explicit Sums(std::uint64_t file_bytes) : memory(BlockChecksums::count(file_bytes)) {}

  std::vector<std::uint64_t> memory;
  BlockChecksums of_file{memory};
};

}  // namespace

TEST_CASE("a block reads back as written, or as zeros if it was never written") {
  Sums ten(10 * 4096);
  BlockChecksums& sums = ten.of_file;
  const Blocks zeros(10 * 4096), written = Blocks::random(3 * 4096, 1);
  CHECK(!sums.first_damaged(0, zeros.span()));
  CHECK(sums.first_damaged(8192, written.span()) == 8192);
  sums.record(8192, written.span());
  CHECK(!sums.first_damaged(8192, written.span()));
  CHECK(!sums.first_damaged(12288, written.span(4096, 4096)));
  CHECK(sums.first_damaged(0, zeros.span()) == 8192);
  sums.record(8192, zeros.span(0, 3 * 4096));
  CHECK(!sums.first_damaged(0, zeros.span()));
}

TEST_CASE("every changed bit, and a block from another location, is detected") {
  const Blocks written = Blocks::random(4 * 4096, 2);
  Sums four(4 * 4096);
  BlockChecksums& sums = four.of_file;
  sums.record(0, written.span());
  for (std::size_t bit = 0; bit < 8 * 4096; ++bit) {
    std::byte& byte = written.data()[4096 + bit / 8];
    byte ^= std::byte{1} << bit % 8;
    CHECK(sums.first_damaged(0, written.span()) == 4096);
    byte ^= std::byte{1} << bit % 8;
  }
  CHECK(!sums.first_damaged(0, written.span()));
  std::swap_ranges(written.data(), written.data() + 4096, written.data() + 3 * 4096);
  CHECK(sums.first_damaged(0, written.span()) == 0);
  CHECK(sums.first_damaged(4096, written.span(4096, 3 * 4096)) == 3 * 4096);
}

TEST_CASE("several changes at once do not cancel each other") {
  for (const std::uint64_t seed : test::seeds(2000)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Blocks written = Blocks::random(4096, seed);
    Sums one(4096);
    BlockChecksums& sums = one.of_file;
    sums.record(0, written.span());
    const std::byte change = static_cast<std::byte>(1 + random() % 255);
    const std::size_t first = random() % 4096, second = (first + 128 * (1 + random() % 31)) % 4096;  // same lane
    written.data()[first] ^= change;
    written.data()[second] ^= change;
    CHECK(sums.first_damaged(0, written.span()) == 0);
  }
}
