// Runs a task on the pool, or on the calling thread if it has a single piece, such as a decoder's single rows.
#pragma once

#include "runtime/host/compute_pool.hpp"

#include <cstddef>

namespace ranvier::models {

/// Calls pool.run(task), or task(0, 1) if there is one piece, which saves about 1 µs of synchronization with other
/// threads.
template <typename F>
void run_pieces(runtime::ComputePool& pool, std::size_t pieces, const F& task) {
  if (pieces <= 1) return task(0, 1);
  pool.run(task);
}

}  // namespace ranvier::models
