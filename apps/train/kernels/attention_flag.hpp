// Whose kernels compute attention on GPUs, as far as the options say; models/ops/attention_choice.hpp. Pure; any
// thread.
#pragma once

#include "apps/train/options/train_options.hpp"

namespace ranvier::apps {

/// Our own if the library cannot help: not on a GPU, in fp32, with dropout or documents of samples, in a build without
/// it, or if nothing is measured. Throws ErrorCode::usage if --attention cudnn asks for what cannot be, or if
/// --attention-backward fast has no use.
[[nodiscard]] models::AttentionKernels attention_kernels(const TrainOptions& options, bool library_is_built);

/// The same for this build.
[[nodiscard]] models::AttentionKernels attention_kernels(const TrainOptions& options);

}  // namespace ranvier::apps
