#include "models/ops/embedding.hpp"

#include "models/ops/dispatch.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

/// Expected number of positions whose tokens are among `rows` of the vocabulary, if all tokens are equally frequent.
std::size_t positions_within(const EmbeddingShape& shape, std::size_t rows) {
  const std::size_t N = shape.samples * shape.positions;
  if (rows >= shape.vocab_size) return N;
  const double share = static_cast<double>(rows) / static_cast<double>(shape.vocab_size);
  return static_cast<std::size_t>(share * static_cast<double>(N));
}

/// Cost of reading or writing `rows` rows of C elements, and a token for each of `positions`.
runtime::WorkCost cost_of(const EmbeddingShape& shape, runtime::DType dtype, std::size_t rows,
                          std::size_t positions, std::size_t more = 0) {
  return memory_cost(runtime::WorkKind::embedding, dtype,
                     bytes_of(rows * shape.channels, dtype) + positions * sizeof(std::int32_t) + more);
}

/// Cost of both gradients: rows with a gradient are read and written, or the complete table is written.
runtime::WorkCost backward_cost(const EmbeddingShape& shape, runtime::DType dtype,
                                const EmbeddingBackward& arrays) {
  const std::size_t N = shape.samples * shape.positions;
  std::size_t read = 0, rows = 0;
  if (arrays.tokens_gradient != nullptr) {
    read = positions_within(shape, arrays.token_rows);
    rows += arrays.accumulate ? 2 * std::min(read, arrays.token_rows) : arrays.token_rows;
  }
  if (arrays.positions_gradient != nullptr) {
    read = N;
    rows += arrays.accumulate ? 2 * shape.positions : arrays.position_rows;
  }
  return cost_of(shape, dtype, read, arrays.tokens_gradient == nullptr ? 0 : N,
                 bytes_of(rows * shape.channels, arrays.gradient_dtype));
}

}  // namespace

void embedding_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype, void* out,
                       const std::int32_t* tokens, const void* tokens_table, const void* positions_table,
                       const std::int32_t* positions) {
  expect_kernel(dtype, "embedding");
  const std::size_t N = shape.samples * shape.positions;
  const std::size_t tables = std::min(N, shape.vocab_size) + shape.positions;
  on_device<embedding_forward_cpu, embedding_forward_cuda>(
      stream, cost_of(shape, dtype, N + tables, positions == nullptr ? N : 2 * N), shape, dtype, out, tokens,
      tokens_table, positions_table, positions);
}

void embedding_tokens_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                              void* out, const std::int32_t* tokens, const void* table, std::size_t first_row,
                              std::size_t rows) {
  expect_kernel(dtype, "embedding");
  const std::size_t found = positions_within(shape, rows);
  on_device<embedding_tokens_forward_cpu, embedding_tokens_forward_cuda>(
      stream, cost_of(shape, dtype, found + std::min(found, rows), shape.samples * shape.positions), shape, dtype,
      out, tokens, table, first_row, rows);
}

void embedding_positions_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                                 void* out, const void* positions_table, const std::int32_t* positions) {
  expect_kernel(dtype, "embedding");
  const std::size_t N = shape.samples * shape.positions;
  on_device<embedding_positions_forward_cpu, embedding_positions_forward_cuda>(
      stream, cost_of(shape, dtype, 2 * N + shape.positions, positions == nullptr ? 0 : N), shape, dtype, out,
      positions_table, positions);
}

void embedding_backward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                        const EmbeddingBackward& arrays) {
  expect_kernel(dtype, "embedding");
  constexpr std::size_t most = std::size_t{1} << 30;  // limit of the counters in `order`
  if (shape.samples * shape.positions > most) {
    fail(ErrorCode::usage,
         "the embedding's gradient supports {} positions per microbatch, not {}; use a smaller `microbatch_size`",
         most, shape.samples * shape.positions);
  }
  on_device<embedding_backward_cpu, embedding_backward_cuda>(stream, backward_cost(shape, dtype, arrays), shape,
                                                             dtype, arrays);
}

}  // namespace ranvier::models
