// Loops on the pool's threads, or on the calling thread if they have a single piece, such as a decoder's single rows.
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

/// Calls f(row) for each of these rows.
template <typename F>
void for_each_row(runtime::ComputePool& pool, std::size_t rows, const F& f) {
  run_pieces(pool, rows, [&](int thread, int threads) {
    const auto share = runtime::share_of(rows, thread, threads);
    for (std::size_t row = share.begin; row < share.end; ++row) f(row);
  });
}

}  // namespace ranvier::models
