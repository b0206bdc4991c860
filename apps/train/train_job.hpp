// What the flags of ranvier-train train: the model, its samples and what reads them. Any thread.
#pragma once

#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"

namespace ranvier::apps {

/// The same on every rank. A dry run needs no data, and then has no source of samples. Throws ErrorCode::usage for
/// flags that name no model, or data that do not go with it, and what opening the data throws.
[[nodiscard]] Job make_job(const TrainOptions& options);

}  // namespace ranvier::apps
