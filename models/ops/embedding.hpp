// Rows of a table by token, plus rows of a table by position.
//
// Letters: B samples, T positions, C channels, V vocabulary.
#pragma once

#include "models/ops/backends.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct EmbeddingShape {
  std::size_t samples = 0;     ///< B
  std::size_t positions = 0;   ///< T
  std::size_t channels = 0;    ///< C
  std::size_t vocab_size = 0;  ///< V
};

/// out[B, T, C] = tokens_table[tokens[B, T]] + positions_table[positions[B, T]], or where `positions` is null the rows
/// 0 … T-1 of each sample. The stream fails with ErrorCode::data on a token outside [0, V).
void embedding_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype, void* out,
                       const std::int32_t* tokens, const void* tokens_table, const void* positions_table,
                       const std::int32_t* positions = nullptr);

/// The same in two steps, for a table that is there in tiles only. out[i] = table[tokens[i] - first_row] for the
/// tokens in [first_row, first_row + rows); the rows of other tokens stay as they are.
void embedding_tokens_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                              void* out, const std::int32_t* tokens, const void* table, std::size_t first_row,
                              std::size_t rows);
/// out[B, T, C] += positions_table[positions[B, T]], or the rows 0 … T-1.
void embedding_positions_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                                 void* out, const void* positions_table, const std::int32_t* positions = nullptr);

struct EmbeddingBackward {
  void* tokens_gradient = nullptr;  ///< of rows [first_row, first_row + token_rows) of the table; null: none
  std::size_t first_row = 0;
  std::size_t token_rows = 0;  ///< without `accumulate`, rows of no token become zero
  void* positions_gradient =
      nullptr;                    ///< of rows 0 … T-1 of each sample; null: none. That of other positions is as
                                  ///< that of so many tokens
  std::size_t position_rows = 0;  ///< at least T, likewise
  runtime::DType gradient_dtype = runtime::DType::f32;
  const void* d_out = nullptr;  ///< [B, T, C]
  const std::int32_t* tokens = nullptr;
  bool accumulate = false;
  std::int32_t* order = nullptr;  ///< workspace [B, T]
  bool in_order = false;          ///< `order` is as a call for the same tokens has left it
};

/// Sums each row's gradients in float, sample by sample and position by position for any number of threads,
/// and rounds once. Throws ErrorCode::usage beyond 2^30 positions.
void embedding_backward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                        const EmbeddingBackward& arrays);

// Their kernels.
OnCpu<decltype(embedding_forward)> embedding_forward_cpu;
OnCuda<decltype(embedding_forward)> embedding_forward_cuda;
OnCpu<decltype(embedding_tokens_forward)> embedding_tokens_forward_cpu;
OnCuda<decltype(embedding_tokens_forward)> embedding_tokens_forward_cuda;
OnCpu<decltype(embedding_positions_forward)> embedding_positions_forward_cpu;
OnCuda<decltype(embedding_positions_forward)> embedding_positions_forward_cuda;
OnCpu<decltype(embedding_backward)> embedding_backward_cpu;
OnCuda<decltype(embedding_backward)> embedding_backward_cuda;

}  // namespace ranvier::models
