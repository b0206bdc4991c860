// Gathers positions with a target, so that a language model computes logits of only these. Each sample's number of
// targets is known only on the device; arrays have the size for the largest number.
//
// Letters: B samples, T positions, F gathered positions per sample.
#pragma once

#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct TargetRows {
  std::size_t samples = 0;    ///< B
  std::size_t positions = 0;  ///< T, less than 2^31
  std::size_t chosen = 0;     ///< F, at most T

  [[nodiscard]] std::size_t all() const noexcept { return samples * positions; }
  [[nodiscard]] std::size_t rows() const noexcept { return samples * chosen; }
};

/// places[B, F] = per sample the positions with a target, in order, then the first ones without (no_target), so that
/// all are different. chosen_targets[B, F] = targets[B, T] at these places. The stream fails with ErrorCode::data if a
/// sample has more than F targets.
void choose_rows(runtime::StreamView stream, const TargetRows& shape, std::int32_t* places,
                 std::int32_t* chosen_targets, const std::int32_t* targets);

/// to[B, F] = from[B, T] at these places. `row_bytes`: bytes per row, an even number.
void gather_rows(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                 const std::int32_t* places, std::size_t row_bytes);

/// to[B, T] = from[B, F] at these places, zero elsewhere.
void scatter_rows(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                  const std::int32_t* places, std::size_t row_bytes);

// GPU kernels. scatter_rows_cuda() writes only the given places.
decltype(choose_rows) choose_rows_cuda;
decltype(gather_rows) gather_rows_cuda;
decltype(scatter_rows) scatter_rows_cuda;

}  // namespace ranvier::models
