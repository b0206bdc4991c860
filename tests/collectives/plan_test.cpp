#include "collectives/plans/plan.hpp"
#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;

TEST_CASE("chunks divide every piece without gaps, for any number of chunks") {
  for (const std::size_t length : {0, 1, 2, 7, 64})
    for (const int pieces : {1, 2, 5})
      for (const int chunks : {1, 2, 3, 10}) {
        std::size_t next = 0;
        for (int piece = 0; piece < pieces; ++piece) {
          for (int chunk = 0; chunk < chunks; ++chunk) {
            const Range range = chunk_of_piece(length * pieces, pieces, piece, chunks, chunk);
            CHECK(range.begin == next);
            next += range.count;
          }
          CHECK(next == length * (piece + 1));
        }
      }
}

TEST_CASE("invalid piece indices and elements that do not divide are refused") {
  CHECK_THROWS_AS((void)chunk_of_piece(10, 3, 0, 1, 0), ranvier::Error);
  CHECK_THROWS_AS((void)chunk_of_piece(10, 2, 2, 1, 0), ranvier::Error);
  CHECK_THROWS_AS((void)chunk_of_piece(10, 2, 0, 2, 2), ranvier::Error);
}
