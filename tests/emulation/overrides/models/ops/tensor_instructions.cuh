// Replaces the real header: implements the instructions lane by lane, as PTX's manual defines them.
#pragma once

#include "models/ops/cuda_vector.cuh"
#include "tests/emulation/machine.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace ranvier::models::cuda {

using Sums = float[4];
using Left = std::uint32_t[4];

/// mma.m16n8k16: element (row, k) of the left operand is in lane 4 (row % 8) + k % 8 / 2, in its pair
/// row / 8 + 2 (k / 8); element (k, column) of the right one in lane 4 column + k % 8 / 2, in its pair k / 8.
template <typename T>
void multiply_add(Sums& sums, const Left& left, std::uint32_t b0, std::uint32_t b1) {
  constexpr int depth = 16, right = 8;  // a lane's numbers of the left operand come first
  const std::uint32_t pairs[] = {left[0], left[1], left[2], left[3], b0, b1};
  float own[2 * std::size(pairs)];
  for (std::size_t i = 0; i < std::size(own); ++i) {
    own[i] = to_float(std::bit_cast<T>(static_cast<std::uint16_t>(pairs[i / 2] >> (16 * (i % 2)))));
  }
  const auto& all = emulation::exchange(own, sizeof own);
  const int lane = emulation::lane(), g = lane / 4, c = lane % 4;
  float a[2][depth], b[2][depth];  // rows g and g + 8; columns 2 c and 2 c + 1
  for (int k = 0; k < depth; ++k) {
    const auto numbers = [&](int line) {
      return static_cast<const float*>(all[static_cast<std::size_t>(4 * line + k % 8 / 2)]);
    };
    for (int half = 0; half < 2; ++half) {
      a[half][k] = numbers(g)[2 * (half + 2 * (k / 8)) + k % 2];
      b[half][k] = numbers(2 * c + half)[right + 2 * (k / 8) + k % 2];
    }
  }
  for (int k = 0; k < depth; ++k) {
    for (int e = 0; e < 4; ++e) sums[e] += a[e / 2][k] * b[e % 2][k];
  }
}

/// ldmatrix.x4: lane 8 m + r has the address of row r of matrix m; `element` of (row, column) of each goes to the
/// lanes.
template <typename Element>
void load_four(std::uint32_t (&to)[4], const void* row, const Element& element) {
  const auto& all = emulation::exchange(&row, sizeof row);
  const int lane = emulation::lane();
  for (int m = 0; m < 4; ++m) {
    const auto at = [&](int r, int column) -> std::uint32_t {
      const void* place;
      std::memcpy(&place, all[static_cast<std::size_t>(8 * m + r)], sizeof place);
      std::uint16_t bits;
      std::memcpy(&bits, static_cast<const std::byte*>(place) + 2 * column, sizeof bits);
      return bits;
    };
    to[m] = element(at, lane / 4, 2 * (lane % 4)) | element(at, lane / 4, 2 * (lane % 4) + 1) << 16;
  }
}
inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  load_four(to, row, [](const auto& at, int r, int column) { return at(r, column); });
}
inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  load_four(to, row, [](const auto& at, int r, int column) { return at(column, r); });
}

inline float power_of_2(float x) { return x < -126.0f ? 0.0f : std::exp2(x); }

inline void copy_ahead(void* to, const void* from, bool zeros) {
  emulation::copy_later(to, zeros ? nullptr : from, 16);
}
inline void end_group() { emulation::end_copy_group(); }
template <int groups>
void wait_for_groups() {
  emulation::wait_for_copies(groups);
}

}  // namespace ranvier::models::cuda
