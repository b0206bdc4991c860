// What is at the paths of --data and --tokenizer, in a few letters: the same wherever those files lie. Any thread.
#pragma once

#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"

#include <string>

namespace ranvier::apps {

/// From sizes and fingerprints of the files, in their order, weights of a mixture and the kind of tokenizer. Throws
/// ErrorCode::io where one cannot be read.
[[nodiscard]] std::string data_content(const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
