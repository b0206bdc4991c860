// Norms on a GPU. blockDim.x threads compute a row and keep its channels in registers. A block computes blockDim.y rows
// at a time. Thread x has packs x, x + blockDim.x, … of `width` channels each. Only .cu files include this.
#pragma once

#include "models/ops/cuda_vector.cuh"
#include "runtime/base/error.hpp"
#include "runtime/kernels/launch.cuh"

#include <algorithm>
#include <initializer_list>
#include <type_traits>

namespace ranvier::models::cuda {

inline constexpr int max_row_threads = 512;
inline constexpr int max_block_rows = 8;  // rows that a block computes at a time

/// Sums over the threads of a row, identical in all of them. One instance per block, in shared memory.
struct RowSums {
  float parts[2][max_row_threads / 32][2];

  /// Called by every thread of the block, with `turn` alternating 0, 1, 0, 1, …: results of the previous turn may still
  /// be read.
  __device__ float2 sum(float first, float second, int turn) {
    first = warp_sum(first);
    second = warp_sum(second);
    const int warps = static_cast<int>(blockDim.x) / 32;
    if (warps == 1) return {first, second};
    const int row_warps = static_cast<int>(threadIdx.y) * warps;
    if (threadIdx.x % 32 == 0) {
      parts[turn][row_warps + threadIdx.x / 32][0] = first;
      parts[turn][row_warps + threadIdx.x / 32][1] = second;
    }
    __syncthreads();
    float2 total{0, 0};
    for (int warp = 0; warp < warps; ++warp) {
      total.x += parts[turn][row_warps + warp][0];
      total.y += parts[turn][row_warps + warp][1];
    }
    return total;
  }
};

template <int vectors, int width>
struct Row {
  float at[vectors][width];

  /// Fills with zeros past the end.
  template <typename T>
  __device__ void load(const T* row, int channels) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const int c = channel(v);
      if (c < channels) {
        cuda::load(at[v], row + c);
      } else {
#pragma unroll
        for (int i = 0; i < width; ++i) at[v][i] = 0;
      }
    }
  }

  template <typename T>
  __device__ void store(T* row, int channels) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      if (channel(v) < channels) cuda::store(row + channel(v), at[v]);
  }

  __device__ static int channel(int v) {
    return (static_cast<int>(threadIdx.x) + v * static_cast<int>(blockDim.x)) * width;
  }
};

struct RowGeometry {
  dim3 threads;
  int vectors;
};

inline RowGeometry row_geometry(std::size_t channels, int width) {
  const std::size_t packs = ceil_divide(channels, static_cast<std::size_t>(width));
  const std::size_t across = std::min<std::size_t>(max_row_threads, ceil_divide(packs, 32) * 32);
  std::size_t rows = 1;
  while (rows < max_block_rows && 2 * rows * across <= max_row_threads) rows *= 2;
  const std::size_t vectors = ceil_divide(packs, across);
  expect(vectors <= 8, "a norm of {} channels: a GPU's kernel takes {}, or {} where they are a multiple of 8",
         channels, 8 * max_row_threads, 32 * max_row_threads);
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(rows)), static_cast<int>(vectors)};
}

/// Calls `f` with T, number of vectors, width and threads per block, like with_rows(), for rows of `channels` channels
/// that start at multiples of `step` elements.
template <typename F>
void with_norm_rows(std::size_t channels, std::size_t step, runtime::DType dtype,
                    std::initializer_list<const void*> arrays, const F& f) {
  with_rows(dtype, step, arrays, [&](auto type, auto width) {
    const RowGeometry g = row_geometry(channels, width());
    if (g.vectors == 1) {
      f(type, std::integral_constant<int, 1>{}, width, g.threads);
    } else if (g.vectors == 2) {
      f(type, std::integral_constant<int, 2>{}, width, g.threads);
    } else if (g.vectors <= 4) {
      f(type, std::integral_constant<int, 4>{}, width, g.threads);
    } else if constexpr (width() <= 4) {
      f(type, std::integral_constant<int, 8>{}, width, g.threads);
    } else {
      fail(ErrorCode::internal, "a norm of {} channels: a GPU's kernel takes {} of {}", channels,
           32 * max_row_threads, to_string(dtype));
    }
  });
}

/// sums[n] = Σ partial[blocks, n], in an order that depends on `blocks` only.
template <int columns, int rows>
__global__ void __launch_bounds__(columns* rows)
    sum_kernel(float* sums, const float* partial, std::size_t blocks, std::size_t n) {
  __shared__ float parts[rows][columns];
  const std::size_t column = std::size_t{blockIdx.x} * columns + threadIdx.x;
  float total = 0;
  if (column < n) {
#pragma unroll 4
    for (std::size_t block = threadIdx.y; block < blocks; block += rows) total += partial[block * n + column];
  }
  parts[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= n) return;
  for (int part = 1; part < rows; ++part) total += parts[part][threadIdx.x];
  sums[column] = total;
}

/// Queues sum_kernel().
inline void sum_blocks(const char* name, cudaStream_t queue, float* sums, const float* partial, std::size_t blocks,
                       std::size_t n) {
  constexpr int columns = 32, rows = 16;
  runtime::cuda::launch(name, queue, {blocks_of(n, columns), dim3(columns, rows)}, sum_kernel<columns, rows>, sums,
                        partial, blocks, n);
}

}  // namespace ranvier::models::cuda
