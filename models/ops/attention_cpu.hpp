// CPU kernels of attention.hpp, which checks the arguments. They block until the result is written.
#pragma once

#include "models/ops/attention.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {

enum class AttentionArithmetic {
  quickest,  ///< bf16 pairs if the processor multiplies them, with AMX if available
  vectors,   ///< bf16 pairs, but without AMX
  floats,    ///< floats for every storage type
};

[[nodiscard]] std::size_t attention_cpu_workspace_bytes(const AttentionShape& shape, runtime::DType dtype,
                                                        int threads);

void attention_forward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, runtime::DType dtype,
                           const AttentionArrays& arrays,
                           AttentionArithmetic arithmetic = AttentionArithmetic::quickest);

void attention_backward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, runtime::DType dtype,
                            const AttentionArrays& arrays,
                            AttentionArithmetic arithmetic = AttentionArithmetic::quickest);

}  // namespace ranvier::models
