// Builds the job of ranvier-train from its flags: model, samples, tokenizer, files. Callable from any thread.
#pragma once

#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"

namespace ranvier::apps {

/// The same job on every rank. Without --data a dry run has no samples. Throws ErrorCode::usage if the data do not suit
/// the model, and errors of opening the data.
[[nodiscard]] Job make_job(const TrainOptions& options);

}  // namespace ranvier::apps
