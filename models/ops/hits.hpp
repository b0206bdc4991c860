// How often a model tells the right class: its greatest logit is that of the target.
#pragma once

#include "models/ops/backends.hpp"
#include "models/ops/cross_entropy.hpp"

namespace ranvier::models {

/// *hits = how many of N rows have their greatest logit, the first of several, at their target. A row without a target
/// (no_target), or with a target outside [0, V), has none, nor has one whose logit at the target is no number. `hits`
/// may be in pinned memory.
void count_correct(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype, double* hits,
                   const void* logits, const std::int32_t* targets);

// Its kernels.
OnCpu<decltype(count_correct)> count_correct_cpu;
OnCuda<decltype(count_correct)> count_correct_cuda;

}  // namespace ranvier::models
