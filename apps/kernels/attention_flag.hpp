// Attention kernels on GPUs that the options allow (models/ops/attention_choice.hpp). Pure functions, callable from any
// thread.
#pragma once

#include "apps/options/train_options.hpp"

namespace ranvier::apps {

/// Built-in kernels if cuDNN is not possible or not measured: on a CPU, in fp32, with dropout or document masks, or in
/// a build without cuDNN (`library_is_built`). Throws ErrorCode::usage if --attention cudnn is not possible, or if
/// --attention-backward fast has no use.
[[nodiscard]] models::AttentionKernels attention_kernels(const TrainOptions& options, bool library_is_built);

/// Same for this build.
[[nodiscard]] models::AttentionKernels attention_kernels(const TrainOptions& options);

}  // namespace ranvier::apps
