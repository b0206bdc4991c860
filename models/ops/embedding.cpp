#include "models/ops/embedding.hpp"

#include "models/ops/embedding_cpu.hpp"
#include "models/ops/embedding_cuda.hpp"
#include "models/ops/expect_kernel.hpp"
#include "runtime/cuda_build.hpp"

namespace ranvier::models {

void embedding_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype, void* out,
                       const std::int32_t* tokens, const void* tokens_table, const void* positions_table) {
  expect_kernel(dtype, "embedding");
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream))
      return embedding_forward_cuda(stream, shape, dtype, out, tokens, tokens_table, positions_table);
  }
  stream.launch([=](runtime::ComputePool& pool) {
    embedding_forward_cpu(pool, shape, dtype, out, tokens, tokens_table, positions_table);
  });
}

void embedding_tokens_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                              void* out, const std::int32_t* tokens, const void* table, std::size_t first_row,
                              std::size_t rows) {
  expect_kernel(dtype, "embedding");
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream))
      return embedding_tokens_forward_cuda(stream, shape, dtype, out, tokens, table, first_row, rows);
  }
  stream.launch([=](runtime::ComputePool& pool) {
    embedding_tokens_forward_cpu(pool, shape, dtype, out, tokens, table, first_row, rows);
  });
}

void embedding_positions_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                                 void* out, const void* positions_table) {
  expect_kernel(dtype, "embedding");
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return embedding_positions_forward_cuda(stream, shape, dtype, out, positions_table);
  }
  stream.launch([=](runtime::ComputePool& pool) {
    embedding_positions_forward_cpu(pool, shape, dtype, out, positions_table);
  });
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
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return embedding_backward_cuda(stream, shape, dtype, arrays);
  }
  stream.launch([=](runtime::ComputePool& pool) { embedding_backward_cpu(pool, shape, dtype, arrays); });
}

}  // namespace ranvier::models
