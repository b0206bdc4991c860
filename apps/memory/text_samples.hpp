// Settings for text that the model generates during training. Pure functions, callable from any thread.
#pragma once

#include "actors/rank/sample_options.hpp"
#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"

namespace ranvier::apps {

/// Settings from the flags, with the prompt as tokens. Throws ErrorCode::usage if the job has no tokenizer, or if a
/// token of the prompt is outside the model's vocabulary.
[[nodiscard]] actors::SampleOptions text_samples(const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
