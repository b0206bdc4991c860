// Embedding: rows of a table by token, plus rows of a table by position.
//
// Letters: B samples, T positions, C channels, V vocabulary.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct EmbeddingShape {
  std::size_t samples = 0;     ///< B
  std::size_t positions = 0;   ///< T
  std::size_t channels = 0;    ///< C
  std::size_t vocab_size = 0;  ///< V
};

struct EmbeddingForward {
  void* out = nullptr;  ///< [B, T, C]
  const std::int32_t* tokens = nullptr;
  const void* tokens_table = nullptr;       ///< null: `out` already has the tokens' rows
  const void* positions_table = nullptr;    ///< null: positions have no rows
  const std::int32_t* positions = nullptr;  ///< [B, T]; null: each sample has positions 0 … T-1
  // For tiled tables:
  std::size_t first_row = 0;   ///< the first row in tokens_table
  std::size_t token_rows = 0;  ///< number of rows in tokens_table; 0: V
};

/// out[B, T, C] = tokens_table[tokens[B, T] - first_row] + positions_table[positions[B, T]]. Rows of tokens that are
/// not in the table are not modified. The stream fails with ErrorCode::data on a token outside [0, V).
void embedding_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                       const EmbeddingForward& arrays);

struct EmbeddingBackward {
  void* tokens_gradient = nullptr;  ///< gradient of rows first_row, … (token_rows of them); null: none
  std::size_t first_row = 0;
  std::size_t token_rows = 0;          ///< without `accumulate`, rows without a token become zero
  void* positions_gradient = nullptr;  ///< gradient of rows 0 … T-1; null: none. Pass other positions as tokens
  std::size_t position_rows = 0;       ///< at least T; without `accumulate`, rows from T become zero
  runtime::DType gradient_dtype = runtime::DType::f32;
  const void* d_out = nullptr;  ///< [B, T, C]
  const std::int32_t* tokens = nullptr;
  bool accumulate = false;
  std::int32_t* order = nullptr;  ///< workspace [B, T]
  bool in_order = false;          ///< `order` is still valid from a call with the same tokens
};

/// Sums each row's gradients in float, by sample and then position for any number of threads, and rounds once. Throws
/// ErrorCode::usage for more than 2^30 positions.
void embedding_backward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                        const EmbeddingBackward& arrays);

// GPU kernels.
decltype(embedding_forward) embedding_forward_cuda;
decltype(embedding_backward) embedding_backward_cuda;

}  // namespace ranvier::models
