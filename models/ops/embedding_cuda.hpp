// The GPU's kernels behind embedding.hpp; arguments are checked there. They return at once. Loop thread only.
#pragma once

#include "models/ops/embedding.hpp"

namespace ranvier::models {

void embedding_forward_cuda(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                            void* out, const std::int32_t* tokens, const void* tokens_table,
                            const void* positions_table);
void embedding_tokens_forward_cuda(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                                   void* out, const std::int32_t* tokens, const void* table, std::size_t first_row,
                                   std::size_t rows);
void embedding_positions_forward_cuda(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                                      void* out, const void* positions_table);
void embedding_backward_cuda(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                             const EmbeddingBackward& arrays);

}  // namespace ranvier::models
