// Work on the pool's threads, or on one where there is too little to share: a decoder's single rows.
#pragma once

#include "runtime/compute_pool.hpp"

#include <cstddef>

namespace ranvier::models {

/// pool.run(task); task(0, 1) if the work has but one piece, for which the other threads need not be met (a
/// microsecond, as much as such work takes).
template <typename F>
void run_pieces(runtime::ComputePool& pool, std::size_t pieces, const F& task) {
  if (pieces <= 1) return task(0, 1);
  pool.run(task);
}

}  // namespace ranvier::models
