#include "collectives/plan.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::collectives {

std::size_t Plan::staging_elements(int rank) const {
  std::size_t largest = 0;
  for (const Step& step : ranks.at(rank)) {
    std::size_t arriving = 0;
    for (const Operation& operation : step) {
      if (operation.action == Action::receive_add) arriving += operation.range.count;
    }
    largest = std::max(largest, arriving);
  }
  return largest;
}

Range chunk_of_piece(std::size_t elements, int pieces, int piece, int chunks, int chunk) {
  expect(pieces > 0 && 0 <= piece && piece < pieces, "there is no piece {} of {}", piece, pieces);
  expect(chunks > 0 && 0 <= chunk && chunk < chunks, "there is no chunk {} of {}", chunk, chunks);
  expect(elements % pieces == 0, "{} elements do not divide into {} pieces", elements, pieces);
  const std::size_t length = elements / pieces;
  const std::size_t begin = length * chunk / chunks;
  const std::size_t end = length * (chunk + 1) / chunks;
  return {piece * length + begin, end - begin};
}

}  // namespace ranvier::collectives
