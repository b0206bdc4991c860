// Builds the job of ranvier-train from its flags: model, samples, tokenizer, files. Callable from any thread.
#pragma once

#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"
#include "models/text/text_source.hpp"

#include <string>

namespace ranvier::apps {

/// The same job on every rank. Without --data a dry run has no samples. Throws ErrorCode::usage if the data do not suit
/// the model, and errors of opening the data.
[[nodiscard]] Job make_job(const TrainOptions& options);

/// Startup output about the data: "data: 3 files, 1,204 documents, 2.1M tokens; 4,101 samples of 512
/// per epoch, 500 steps × 16 samples are 1.95 epochs". Adds a line per path if there are several, then both ends of
/// each first sample if `tokenizer` is not null, skipped files and remarks.
[[nodiscard]] std::string data_report(const models::TextData& data, const TrainOptions& options,
                                      const models::Tokenizer* tokenizer);

}  // namespace ranvier::apps
