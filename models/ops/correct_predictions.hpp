// Counts correct predictions: rows whose greatest logit is the target's.
#pragma once

#include "models/ops/backends.hpp"
#include "models/ops/cross_entropy.hpp"

namespace ranvier::models {

/// *correct = number of the N rows whose greatest logit (the first, if several are equal) is the target's. Not counted:
/// rows without a target (no_target), with a target outside [0, V), or whose target has the logit NaN. `correct` may be
/// in pinned memory.
void count_correct(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   double* correct, const void* logits, const std::int32_t* targets);

// Kernels.
OnCpu<decltype(count_correct)> count_correct_cpu;
OnCuda<decltype(count_correct)> count_correct_cuda;

}  // namespace ranvier::models
