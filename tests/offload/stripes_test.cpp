#include "offload/stripes.hpp"
#include "tests/test.hpp"

using namespace ranvier::offload;

TEST_CASE(
    "pieces of a range cover it once, each in one stripe, round-robin over the directories and inside the files") {
  for (const std::size_t directories : {1, 2, 3})
    for (const std::uint64_t end : {1u, 9u, 10u, 11u, 59u, 60u, 61u, 95u}) {
      const Stripes stripes(directories, 10);
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < directories; ++i) sum += stripes.file_bytes(i, end);
      CHECK(sum == end);
      std::map<std::pair<std::size_t, std::uint64_t>, int> taken;  // location in a file → number of uses
      for (std::uint64_t begin = 0; begin < end; begin += 7) {     // ranges of 7; the last is shorter
        std::uint64_t left = std::min<std::uint64_t>(7, end - begin), at = begin;
        while (left > 0) {
          const StripeRange piece = stripes.first_piece(at, left);
          REQUIRE(piece.bytes > 0);
          REQUIRE(piece.bytes <= left);
          CHECK(piece.directory == at / 10 % directories);
          CHECK(piece.offset + piece.bytes <= stripes.file_bytes(piece.directory, end));
          for (std::size_t i = 0; i < piece.bytes; ++i) CHECK(++taken[{piece.directory, piece.offset + i}] == 1);
          at += piece.bytes;
          left -= piece.bytes;
        }
      }
      CHECK(taken.size() == end);
    }
}

TEST_CASE("large regions start on a stripe, small ones in the first free space") {
  const Stripes stripes(2, 100);
  CHECK(stripes.align(0, 500) == 0);
  CHECK(stripes.align(30, 500) == 100);
  CHECK(stripes.align(100, 100) == 100);
  CHECK(stripes.align(30, 99) == 30);
}
