// Startup output about the data: amount, epochs, skipped files and remarks. Pure functions, callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"
#include "models/text/text_source.hpp"

#include <string>

namespace ranvier::apps {

/// "data: 3 files, 1,204 documents, 2.1M tokens; 4,101 samples of 512 per epoch, 500 steps × 16 samples are 1.95
/// epochs". Adds a line per path if there are several, then both ends of each first sample if `tokenizer` is not null,
/// skipped files and remarks.
[[nodiscard]] std::string data_report(const models::TextData& data, const TrainOptions& options,
                                      const models::Tokenizer* tokenizer);

}  // namespace ranvier::apps
