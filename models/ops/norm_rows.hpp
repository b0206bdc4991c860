// Parts of LayerNorm and RMSNorm on the CPU; for a GPU see norm_rows.cuh. A row is a group of channels.
#pragma once

#include "models/ops/vector_math.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <cstddef>

namespace ranvier::models {

/// The row that starts at element `at` of x, or of x + branch, which is stored in `sum`, if there is a branch.
template <typename T>
const T* norm_input(const void* x, const void* branch, void* sum, std::size_t at, std::size_t channels) {
  const T* const row = static_cast<const T*>(x) + at;
  if (branch == nullptr) return row;
  const T* const added = static_cast<const T*>(branch) + at;
  T* const to = static_cast<T*>(sum) + at;
  simd::for_lanes(0, channels, [&](std::size_t c, auto count) {
    simd::store(to + c, simd::load(row + c, count) + simd::load(added + c, count), count);
  });
  return to;
}

/// Calls write(f); f(c, count) is the residual of channels c … of the row at element `at`, or zero if there is none.
template <typename T, typename F>
void with_residual(const void* residual, std::size_t at, const F& write) {
  if (residual == nullptr) return write([](std::size_t, auto) { return simd::Floats{}; });
  const T* const row = static_cast<const T*>(residual) + at;
  write([=](std::size_t c, auto count) { return simd::load(row + c, count); });
}

/// sums[width] = Σ of all rows. add(row, sums) adds one row to the sums of its block. These are stored in
/// workspace[blocks, width] and added in order, so that the number of threads does not change bits.
template <typename F>
void sum_rows(runtime::ComputePool& pool, std::size_t rows, std::size_t block_rows, std::size_t width,
              std::byte* workspace, float* sums, const F& add) {
  const std::size_t blocks = runtime::ceil_divide(rows, block_rows);
  auto* const partial = reinterpret_cast<float*>(workspace);
  pool.run([&](int thread, int threads) {
    const auto share = runtime::share_of(blocks, thread, threads);
    for (std::size_t block = share.begin; block < share.end; ++block) {
      float* const of_block = partial + block * width;
      std::fill(of_block, of_block + width, 0.0f);
      const std::size_t end = std::min(rows, (block + 1) * block_rows);
      for (std::size_t row = block * block_rows; row < end; ++row) add(row, of_block);
    }
  });
  pool.run([&](int thread, int threads) {
    const auto share = runtime::share_of(width, thread, threads, 64);
    simd::for_lanes(share.begin, share.end, [&](std::size_t c, auto count) {
      simd::Floats total{};
      for (std::size_t block = 0; block < blocks; ++block) total += simd::load(partial + block * width + c, count);
      simd::store(sums + c, total, count);
    });
  });
}

}  // namespace ranvier::models
