// The CPU's kernels behind attention.hpp; arguments are checked there. They block until the result is written.
#pragma once

#include "models/ops/attention.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

enum class AttentionArithmetic {
  quickest,  ///< pairs of bf16 where the processor multiplies them, in matrix registers if it has them (AMX)
  vectors,   ///< the same, but without matrix registers
  floats,    ///< of whatever is stored
};

[[nodiscard]] std::size_t attention_cpu_workspace_bytes(const AttentionShape& shape, runtime::DType dtype,
                                                        int threads);

void attention_forward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, runtime::DType dtype, void* out,
                           float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* workspace,
                           const AttentionBounds& bounds = {},
                           AttentionArithmetic arithmetic = AttentionArithmetic::quickest);

void attention_backward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, runtime::DType dtype,
                            void* d_qkv, const void* d_out, const void* qkv, const void* out,
                            const float* logsumexp, const Dropout& dropout, std::byte* workspace,
                            const AttentionBounds& bounds = {},
                            AttentionArithmetic arithmetic = AttentionArithmetic::quickest);

}  // namespace ranvier::models
