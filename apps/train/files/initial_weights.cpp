#include "apps/train/files/initial_weights.hpp"

#include "models/text/bpe_files.hpp"
#include "models/weights/gpt_config.hpp"
#include "models/weights/safetensors.hpp"
#include "runtime/error.hpp"
#include "runtime/memory_map.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;
using models::GptOptions;
using runtime::OptionTable;

constexpr int bytes_vocabulary = 256;

/// Of the weights; never empty.
fs::path folder_of(const std::string& init_from) {
  const fs::path folder = models::find_weights(init_from, "--init-from").parent_path();
  return folder.empty() ? "." : folder;
}

/// "--layers 3", or of a preset "--model gpt2-small, with --layers 12,".
std::string asked_for(const ModelOptions& model, const OptionTable& table, const char* flag, int value) {
  return table.given(flag) ? fmt::format("--{} {}", flag, value)
                           : fmt::format("--model {}, with --{} {},", model.name, flag, value);
}

void adopt_sizes(TrainOptions& options, const OptionTable& table, const models::Safetensors& weights,
                 const models::StoredGpt& stored) {
  ModelOptions& model = options.model;
  const bool is_preset = model.name != "gpt";
  for (const auto& [flag, field] : {std::pair{"layers", &GptOptions::layers},
                                    {"hidden", &GptOptions::hidden},
                                    {"heads", &GptOptions::heads},
                                    {"vocab-size", &GptOptions::vocab_size}}) {
    int& asked = model.gpt.*field;
    const int there = stored.sizes.*field;
    if (asked != there && (is_preset || table.given(flag)))
      fail(ErrorCode::usage, "{} is not the model of --init-from {}, which has {}: leave the flag out",
           asked_for(model, table, flag, asked), options.run.init_from, there);
    asked = there;
  }
  int& length = model.gpt.sequence_length;
  const int positions = stored.sizes.sequence_length;
  if (!is_preset && !table.given("sequence-length")) length = positions;
  if (length > positions)
    fail(ErrorCode::usage, "{} is more than the {} positions that --init-from {} has learned: give at most {}",
         asked_for(model, table, "sequence-length", length), positions, options.run.init_from, positions);
  if (length < positions)
    options.notes.push_back(
        fmt::format("positions: the first {} of the {} in {}", length, positions, weights.path().string()));
}

void adopt_dropout(TrainOptions& options, const OptionTable& table, const models::GptConfig& config,
                   const std::string& file) {
  if (table.given("dropout")) return;
  const float rate = config.dropout.begin()->second;
  std::vector<std::string> rates;
  for (const auto& [key, each] : config.dropout) rates.push_back(fmt::format("'{}' {}", key, each));
  if (std::any_of(config.dropout.begin(), config.dropout.end(),
                  [&](const auto& one) { return one.second != rate; }))
    fail(ErrorCode::usage, "{}: {}: models have one rate for all of them here: give --dropout", file,
         fmt::join(rates, ", "));
  options.model.gpt.dropout = rate;
  options.notes.push_back(fmt::format("dropout: {}, as {} says", rate, file));
}

std::string content_of(const fs::path& path) {
  const runtime::MemoryMap file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

void adopt_initial_weights(TrainOptions& options, const OptionTable& table) {
  const RunOptions& run = options.run;
  if (run.init_from.empty()) {
    if (!run.ignored_tensors.empty())
      fail(ErrorCode::usage, "--ignore-tensors {} is about the weights of --init-from: give that, too",
           run.ignored_tensors);
    return;
  }
  const models::Safetensors weights(models::find_weights(run.init_from, "--init-from"), run.ignored_tensors);
  if (!weights.ignored().empty())
    options.notes.push_back(fmt::format("not read: {} tensor{} of {}, '{}' the first, as --ignore-tensors says",
                                        weights.ignored().size(), weights.ignored().size() > 1 ? "s" : "",
                                        weights.path().string(), weights.ignored().front()));
  const fs::path config = folder_of(run.init_from) / "config.json";
  if (weights.find("wte.weight") == nullptr) {
    static_cast<void>(models::read_gpt_config(config.parent_path()));  // says which kind of model it is instead
    return;
  }
  const bool heads_known = table.given("heads") || (options.model.name != "gpt" && !fs::exists(config));
  const models::StoredGpt stored =
      stored_gpt(weights, heads_known ? std::optional(options.model.gpt.heads) : std::nullopt);
  adopt_sizes(options, table, weights, stored);
  if (stored.config) adopt_dropout(options, table, *stored.config, config.string());
}

void choose_tokenizer(TrainOptions& options, const OptionTable& table) {
  DataOptions& data = options.data;
  const int vocabulary = options.model.gpt.vocab_size;
  const bool guessed = data.tokenizer == Tokenizer::bytes && !table.given("tokenizer") && !data.data.empty();
  if (!guessed || vocabulary <= bytes_vocabulary) return;
  constexpr const char* remedy =
      "give --tokenizer gpt2:DIR with its tokenizer, --tokenizer bytes if bytes are its tokens, or token files";
  if (!options.run.init_from.empty()) {
    const fs::path folder = folder_of(options.run.init_from);
    if (!models::has_bpe_vocabulary(folder))
      fail(ErrorCode::usage,
           "--data {} is text, the model of --init-from {} knows {} tokens, and no tokenizer is beside it: {}",
           data.data, options.run.init_from, vocabulary, remedy);
    data.tokenizer = Tokenizer::gpt2;
    data.gpt2 = folder.string();
    options.notes.push_back(fmt::format("tokenizer: that beside the weights, gpt2:{}", data.gpt2));
  } else if (options.model.name != "gpt") {
    fail(ErrorCode::usage, "--data {} is text, and --model {} knows {} tokens: {}", data.data, options.model.name,
         vocabulary, remedy);
  } else {
    options.notes.push_back(fmt::format("tokenizer: bytes, which are {} of the {} tokens of --vocab-size",
                                        bytes_vocabulary, vocabulary));
  }
}

std::map<std::string, std::string> files_beside_weights(const TrainOptions& options) {
  const RunOptions& run = options.run;
  if (run.save.empty()) return {};
  std::map<std::string, fs::path> paths;
  if (!options.data.gpt2.empty()) paths = models::bpe_vocabulary_files(options.data.gpt2);
  if (!run.init_from.empty()) {
    const fs::path folder = folder_of(run.init_from);
    if (options.data.tokenizer == Tokenizer::none) paths = models::bpe_vocabulary_files(folder);
    if (const fs::path generation = folder / "generation_config.json"; fs::exists(generation))
      paths[generation.filename()] = generation;
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, path] : paths) files[name] = content_of(path);
  return files;
}

std::string initial_config(const TrainOptions& options) {
  if (options.run.init_from.empty()) return {};
  const fs::path config = folder_of(options.run.init_from) / "config.json";
  return fs::exists(config) ? content_of(config) : std::string();
}

}  // namespace ranvier::apps
