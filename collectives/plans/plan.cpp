#include "collectives/plans/plan.hpp"

#include "runtime/base/error.hpp"

namespace ranvier::collectives {

Range chunk_of_piece(std::size_t elements, int pieces, int piece, int chunks, int chunk) {
  expect(pieces > 0 && 0 <= piece && piece < pieces, "piece is out of range: {} of {}", piece, pieces);
  expect(chunks > 0 && 0 <= chunk && chunk < chunks, "chunk is out of range: {} of {}", chunk, chunks);
  expect(elements % pieces == 0, "{} elements are not divisible by {} pieces", elements, pieces);
  const std::size_t length = elements / pieces;
  const std::size_t begin = length * chunk / chunks;
  const std::size_t end = length * (chunk + 1) / chunks;
  return {piece * length + begin, end - begin};
}

}  // namespace ranvier::collectives
