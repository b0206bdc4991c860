// Multiplication of 16-bit matrices in shared memory on tensor cores (mma.sync m16n8k16, architecture 80 and later).
// Only .cu files include this.
//
// A warp holds 16 × 8 sums. With g = lane / 4 and c = lane % 4, a lane has sums (g, 2c), (g, 2c+1), (g+8, 2c), (g+8,
// 2c+1). Two adjacent tiles, rounded to pairs, are the left operand of a multiplication over their 16 columns. So
// softmax weights stay in registers between multiplications.
#pragma once

#include "models/ops/cuda_vector.cuh"
#include "models/ops/tensor_instructions.cuh"

#include <cstdint>

namespace ranvier::models::cuda {

/// `first` in the lower half.
template <typename T>
__device__ std::uint32_t pair(float first, float second);
template <>
__device__ inline std::uint32_t pair<Bf16>(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}
template <>
__device__ inline std::uint32_t pair<F16>(float first, float second) {
  const __half2 both = __floats2half2_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

/// Rows of `columns` elements in shared memory. A gap of 16 bytes after each row spreads eight rows' 16-byte pieces
/// over all banks.
template <typename T, int rows_, int columns_>
struct Tile {
  static constexpr int rows = rows_, columns = columns_, stride = columns_ + 8;
  static_assert(sizeof(T) == 2 && columns % 16 == 0);

  alignas(16) T data[rows * stride];

  __device__ T* at(int row, int column) { return data + row * stride + column; }
  __device__ const T* at(int row, int column) const { return data + row * stride + column; }

  /// Copies `rows_` rows of an array with `count` rows, starting at row `first`: `width` elements each, row_stride
  /// apart. Rows beyond the array are zero. Called by all `threads` threads of the block; does not end the group of
  /// copies.
  template <int threads>
  __device__ void fetch(const T* array, std::size_t row_stride, int first, int count, int width, bool wide) {
    if (wide) {
      constexpr int pieces = columns / 8;
#pragma unroll
      for (int at_piece = 0; at_piece < rows * pieces; at_piece += threads) {
        const int piece = at_piece + static_cast<int>(threadIdx.x);
        if (rows * pieces % threads != 0 && piece >= rows * pieces) break;
        const int row = piece / pieces, column = piece % pieces * 8;
        const bool present = first + row < count && column < width;
        copy_ahead(at(row, column),
                   present ? array + static_cast<std::size_t>(first + row) * row_stride + column : array, !present);
      }
    } else {
      for (int element = static_cast<int>(threadIdx.x); element < rows * columns; element += threads) {
        const int row = element / columns, column = element % columns;
        const bool present = first + row < count && column < width;
        *at(row, column) =
            present ? array[static_cast<std::size_t>(first + row) * row_stride + column] : from_float<T>(0.0f);
      }
    }
  }

  /// Stores factor · sums through rows `row` … of this tile in rows first + row … of an array, up to its end. Called by
  /// one warp; no other warp uses these rows.
  template <int tall>
  __device__ void put(T* array, std::size_t row_stride, int first, int count, int width, bool wide, int row,
                      const float (&factors)[tall][2], const Sums (&sums)[tall][columns_ / 8]) {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
    __syncwarp();
#pragma unroll
    for (int t = 0; t < tall; ++t)
#pragma unroll
      for (int n = 0; n < columns / 8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<std::uint32_t*>(at(row + 16 * t + 8 * half + g, 8 * n + 2 * c)) =
              pair<T>(sums[t][n][2 * half] * factors[t][half], sums[t][n][2 * half + 1] * factors[t][half]);
    __syncwarp();
    if (wide) {
      constexpr int pieces = columns / 8;
      for (int piece = lane; piece < 16 * tall * pieces; piece += 32) {
        const int r = row + piece / pieces, column = piece % pieces * 8;
        if (first + r < count && column < width)
          *reinterpret_cast<uint4*>(array + static_cast<std::size_t>(first + r) * row_stride + column) =
              *reinterpret_cast<const uint4*>(at(r, column));
      }
    } else {
      for (int element = lane; element < 16 * tall * columns; element += 32) {
        const int r = row + element / columns, column = element % columns;
        if (first + r < count && column < width)
          array[static_cast<std::size_t>(first + r) * row_stride + column] = *at(r, column);
      }
    }
  }

  /// Left operand at (row, column).
  __device__ void left(Left& operand, int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(operand, at(row + lane % 16, column + lane / 16 * 8));
  }

  /// Right operands of a multiplication with the transpose: rows `row` … +15 of the tile are 16 columns, and columns
  /// `column` … +15 are summed. Operands (0, 1) are the first 8 columns, (2, 3) the others.
  __device__ void right_of_rows(std::uint32_t (&operands)[4], int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices(operands, at(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
  }

  /// Right operands of a multiplication with the tile: rows `row` … +15 are summed, columns `column` … +15 are 16
  /// columns.
  __device__ void right_of_columns(std::uint32_t (&operands)[4], int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrices_transposed(operands, at(row + lane % 16, column + lane / 16 * 8));
  }
};

/// sums[t][n] += rows row + 16 t … +15 of a · bᵀ, with all rows of b as columns.
template <typename T, int tall, int a_rows, int b_rows, int columns>
__device__ void multiply_rows(Sums (&sums)[tall][b_rows / 8], const Tile<T, a_rows, columns>& a, int row,
                              const Tile<T, b_rows, columns>& b) {
#pragma unroll
  for (int k = 0; k < columns; k += 16) {
    Left left[tall];
#pragma unroll
    for (int t = 0; t < tall; ++t) a.left(left[t], row + 16 * t, k);
#pragma unroll
    for (int n = 0; n < b_rows / 16; ++n) {
      std::uint32_t right[4];
      b.right_of_rows(right, 16 * n, k);
#pragma unroll
      for (int t = 0; t < tall; ++t) {
        multiply_add<T>(sums[t][2 * n], left[t], right[0], right[1]);
        multiply_add<T>(sums[t][2 * n + 1], left[t], right[2], right[3]);
      }
    }
  }
}

/// sums[t][n] += weights[t] (16 × rows of b), rounded to T, · b.
template <typename T, int tall, int b_rows, int columns>
__device__ void multiply_weights(Sums (&sums)[tall][columns / 8], const Sums (&weights)[tall][b_rows / 8],
                                 const Tile<T, b_rows, columns>& b) {
#pragma unroll
  for (int k = 0; k < b_rows / 16; ++k) {
    Left left[tall];
#pragma unroll
    for (int t = 0; t < tall; ++t) {
      left[t][0] = pair<T>(weights[t][2 * k][0], weights[t][2 * k][1]);
      left[t][1] = pair<T>(weights[t][2 * k][2], weights[t][2 * k][3]);
      left[t][2] = pair<T>(weights[t][2 * k + 1][0], weights[t][2 * k + 1][1]);
      left[t][3] = pair<T>(weights[t][2 * k + 1][2], weights[t][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < columns / 16; ++n) {
      std::uint32_t right[4];
      b.right_of_columns(right, 16 * k, 16 * n);
#pragma unroll
      for (int t = 0; t < tall; ++t) {
        multiply_add<T>(sums[t][2 * n], left[t], right[0], right[1]);
        multiply_add<T>(sums[t][2 * n + 1], left[t], right[2], right[3]);
      }
    }
  }
}

}  // namespace ranvier::models::cuda
