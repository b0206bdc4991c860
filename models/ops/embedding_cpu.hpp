// The CPU's kernels behind embedding.hpp; arguments are checked there. They block until the result is written.
#pragma once

#include "models/ops/embedding.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void embedding_forward_cpu(runtime::ComputePool& pool, const EmbeddingShape& shape, runtime::DType dtype, void* out,
                           const std::int32_t* tokens, const void* tokens_table, const void* positions_table);
void embedding_tokens_forward_cpu(runtime::ComputePool& pool, const EmbeddingShape& shape, runtime::DType dtype,
                                  void* out, const std::int32_t* tokens, const void* table, std::size_t first_row,
                                  std::size_t rows);
void embedding_positions_forward_cpu(runtime::ComputePool& pool, const EmbeddingShape& shape, runtime::DType dtype,
                                     void* out, const void* positions_table);
void embedding_backward_cpu(runtime::ComputePool& pool, const EmbeddingShape& shape, runtime::DType dtype,
                            const EmbeddingBackward& arrays);

}  // namespace ranvier::models
