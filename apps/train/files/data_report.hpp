// What people are told about the data before training: what there is, how many epochs the steps make of it, which
// files a folder's walk left out, and what is odd about the others. Pure; any thread.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "models/text/text_source.hpp"

#include <string>

namespace ranvier::apps {

/// "data: 3 files, 1,204 documents, 2.1M tokens; 4,101 samples of 512 an epoch, 500 steps × 16 samples are 1.95
/// epochs", a line for each path where there are several, the ends of each path's first sample if there is a tokenizer,
/// and a line for each remark.
[[nodiscard]] std::string data_report(const models::TextData& data, const TrainOptions& options,
                                      const models::Tokenizer* tokenizer);

}  // namespace ranvier::apps
