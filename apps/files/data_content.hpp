// Fingerprint of the files of --data and --tokenizer, independent of their paths. Callable from any thread.
#pragma once

#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"

#include <string>

namespace ranvier::apps {

/// Text from sizes and fingerprints of the files in order, the weights of a mixture and the kind of tokenizer. Throws
/// ErrorCode::io if a file is unreadable.
[[nodiscard]] std::string data_content(const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
