// From parsed options and a model to a finished run: what ranvier-train and programs with stages of their own
// have in common.
//
//   int main(int argc, char** argv) {
//     return apps::launch("my-train", argc, argv, [](const apps::TrainOptions& options) { … return job; });
//   }
#pragma once

#include "actors/rank/rank.hpp"
#include "apps/train/options/train_options.hpp"
#include "models/architecture.hpp"
#include "models/sample_source.hpp"
#include "models/text/choice_file.hpp"
#include "models/text/tokenizer.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ranvier::apps {

/// What is trained, on what.
struct Job {
  models::Architecture architecture;
  models::SampleBytes sample;
  std::unique_ptr<models::SampleSource> source;      ///< may be null for a dry run
  std::unique_ptr<models::SampleSource> validation;  ///< null: nothing is evaluated
  double bytes_per_token = 0;  ///< of the text that is evaluated; 0: unknown
  std::shared_ptr<const models::Tokenizer> tokenizer;  ///< of samples of text; null: there is none
  std::shared_ptr<const models::ChoiceFile> choices;   ///< --hellaswag's; null: none
  std::string data;                          ///< about the samples, for people; empty: nothing
  std::vector<std::filesystem::path> files;  ///< whose content decides what is trained: the same on every rank
  std::string config;  ///< of the model, as config.json has it beside saved weights; empty: there is none
  std::map<std::string, std::string> beside_weights;  ///< other files that are saved there, by name
};

/// Builds the same job on every rank; may throw on any of them.
using JobBuilder = std::function<Job(const TrainOptions&)>;

/// Initialises MPI, parses, builds, trains, reports, saves. Returns the exit status. An error ends all ranks
/// and is printed once, by one of them.
[[nodiscard]] int launch(const char* program, int argc, char** argv, const JobBuilder& build);

}  // namespace ranvier::apps
