#include "collectives/plans/plan_choice.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <numeric>

namespace ranvier::collectives {

const Algorithm& PlanChoice::algorithm_of(Collective collective) const {
  switch (collective) {
    case Collective::all_gather:
      return algorithm(collective, all_gather);
    case Collective::reduce_scatter:
      return algorithm(collective, reduce_scatter);
    case Collective::all_reduce:
      return algorithm(collective, all_reduce);
  }
  fail(ErrorCode::internal, "unknown collective: number {}", static_cast<int>(collective));
}

int PlanChoice::chunks(int ranks, std::span<const std::size_t> parts, runtime::DType dtype) const {
  expect(ranks > 0 && chunk_bytes > 0, "invalid sizes: {} ranks, chunks of {} bytes", ranks, chunk_bytes);
  const std::size_t elements = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  const std::size_t piece_bytes = elements * size_of(dtype) / static_cast<std::size_t>(ranks);
  return static_cast<int>(std::max<std::size_t>(1, runtime::ceil_divide(piece_bytes, chunk_bytes)));
}

}  // namespace ranvier::collectives
