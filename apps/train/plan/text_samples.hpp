// The text that a model writes while it trains, as actors are asked for it. Pure; any thread.
#pragma once

#include "actors/rank/sample_options.hpp"
#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"

namespace ranvier::apps {

/// As the flags ask, with the prompt in tokens. Throws ErrorCode::usage where the job has no tokenizer, or its
/// model does not know a token of the prompt.
[[nodiscard]] actors::SampleOptions text_samples(const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
