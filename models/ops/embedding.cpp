#include "models/ops/embedding.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void embedding_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype, void* out,
                       const std::int32_t* tokens, const void* tokens_table, const void* positions_table,
                       const std::int32_t* positions) {
  expect_kernel(dtype, "embedding");
  on_device<embedding_forward_cpu, embedding_forward_cuda>(stream, shape, dtype, out, tokens, tokens_table,
                                                           positions_table, positions);
}

void embedding_tokens_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                              void* out, const std::int32_t* tokens, const void* table, std::size_t first_row,
                              std::size_t rows) {
  expect_kernel(dtype, "embedding");
  on_device<embedding_tokens_forward_cpu, embedding_tokens_forward_cuda>(stream, shape, dtype, out, tokens, table,
                                                                         first_row, rows);
}

void embedding_positions_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                                 void* out, const void* positions_table, const std::int32_t* positions) {
  expect_kernel(dtype, "embedding");
  on_device<embedding_positions_forward_cpu, embedding_positions_forward_cuda>(stream, shape, dtype, out,
                                                                               positions_table, positions);
}

void embedding_backward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                        const EmbeddingBackward& arrays) {
  expect_kernel(dtype, "embedding");
  constexpr std::size_t most = std::size_t{1} << 30;  // `order` counts them
  if (shape.samples * shape.positions > most) {
    fail(ErrorCode::usage,
         "the embedding's gradient takes {} positions at a time, not {}: use a smaller --microbatch-size", most,
         shape.samples * shape.positions);
  }
  on_device<embedding_backward_cpu, embedding_backward_cuda>(stream, shape, dtype, arrays);
}

}  // namespace ranvier::models
