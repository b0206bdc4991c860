// Model and data of a training job. Plain data; the same on all ranks.
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/sample_source.hpp"
#include "models/text/question_file.hpp"
#include "models/tokenizers/tokenizer.hpp"
#include "models/weights/safetensors.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::apps {

struct TrainOptions;

struct Job {
  models::Architecture architecture;
  models::SampleBytes sample;
  std::unique_ptr<models::SampleSource> source;           ///< null only for a dry run without --data
  std::unique_ptr<models::SampleSource> validation;       ///< null: no evaluation
  std::string item = "token";                             ///< unit of throughput in console output
  std::int64_t tokens_per_sample = 0;                     ///< items per sample; 0: number of positions with a loss
  double bytes_per_token = 0;                             ///< mean over the validation text; 0: unknown
  std::shared_ptr<const models::Tokenizer> tokenizer;     ///< tokenizer of generated samples; null: none
  std::shared_ptr<const models::QuestionFile> questions;  ///< file of --hellaswag; null: none
  std::string data;                          ///< description of the samples for the startup output; may be empty
  std::vector<std::filesystem::path> files;  ///< input files, compared between ranks
  std::string config;                        ///< content of config.json for saved weights; empty: none
  std::map<std::string, std::string> beside_weights;  ///< other files saved with weights: content by name
  /// Weights of --init-from from which --save copies untrained tensors; null: none.
  std::shared_ptr<const models::Safetensors> untrained;

  /// Items per sample, for throughput and totals.
  [[nodiscard]] std::int64_t tokens_of_sample() const {
    return tokens_per_sample > 0 ? tokens_per_sample : source->losses_per_sample();
  }
};

/// Builds the job, the same on every rank; may throw on any rank.
using JobBuilder = std::function<Job(const TrainOptions&)>;

}  // namespace ranvier::apps
