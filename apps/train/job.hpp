// What a training program trains, on what. Plain data; the same on all ranks.
#pragma once

#include "models/architecture.hpp"
#include "models/sample_source.hpp"
#include "models/text/question_file.hpp"
#include "models/text/tokenizer.hpp"
#include "models/weights/safetensors.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::apps {

struct Job {
  models::Architecture architecture;
  models::SampleBytes sample;
  std::unique_ptr<models::SampleSource> source;           ///< may be null for a dry run
  std::unique_ptr<models::SampleSource> validation;       ///< null: nothing is evaluated
  std::string item = "token";                             ///< what a sample has some of, for people
  std::int64_t tokens_per_sample = 0;                     ///< items; 0: as many as have a loss
  double bytes_per_token = 0;                             ///< of the text that is evaluated; 0: unknown
  std::shared_ptr<const models::Tokenizer> tokenizer;     ///< of samples of text; null: there is none
  std::shared_ptr<const models::QuestionFile> questions;  ///< --hellaswag's; null: none
  std::string data;                                       ///< about the samples, for people; empty: nothing
  std::vector<std::filesystem::path> files;  ///< whose content decides what is trained: the same on every rank
  std::string config;  ///< of the model, as config.json has it beside saved weights; empty: there is none
  std::map<std::string, std::string> beside_weights;  ///< other files that are saved there, by name
  /// Weights of --init-from, from which --save copies tensors that are not trained; null: there are none.
  std::shared_ptr<const models::Safetensors> untrained;

  /// As people count them.
  [[nodiscard]] std::int64_t tokens_of_sample() const {
    return tokens_per_sample > 0 ? tokens_per_sample : source->losses_per_sample();
  }
};

}  // namespace ranvier::apps
