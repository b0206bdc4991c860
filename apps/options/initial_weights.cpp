#include "apps/options/initial_weights.hpp"

#include "models/families/bert.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/weights/config_file.hpp"
#include "models/weights/safetensors.hpp"
#include "runtime/files/memory_map.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;

constexpr int bytes_vocabulary = 256;
constexpr int usual_length = 2048;  // sample length for models without learned positions

/// Folder of the weights; never empty.
fs::path folder_of(const std::string& init_from) {
  const fs::path folder = models::find_weights(init_from, "--init-from").parent_path();
  return folder.empty() ? "." : folder;
}

/// Text for errors: "--layers 3", or for a preset "--model gpt2-small, with --layers 12,".
std::string asked_for(const TrainOptions& options, std::string_view flag, int value) {
  return options.is_given(flag) ? fmt::format("--{} {}", flag, value)
                                : fmt::format("--model {}, with --{} {},", options.model.name, flag, value);
}

/// Adopts the family of the weights; throws if --model names another one.
void adopt_family(TrainOptions& options, const models::ModelSizes& stored) {
  ModelOptions& model = options.model;
  const std::string_view family = models::family_name(stored);
  // A Mistral without a window is a LLaMA; adopt_sizes() compares windows.
  const auto kind = [](std::string_view name) { return name == "mistral" ? std::string_view("llama") : name; };
  if (options.is_given("model") && kind(models::family_name(*models::named_model(model.name))) != kind(family))
    reject("--model {} is not the model of --init-from {}, which is a {}; remove --model", model.name,
           options.run.init_from, family);
  models::ModelSizes sizes = stored;
  if (const float rate = models::dropout_of(model.sizes);
      rate != 0 && options.is_given("dropout") && models::find_dropout(sizes) == nullptr)
    reject("--dropout {} has no effect: the model of --init-from {} is a {} without dropout; remove --dropout",
           rate, options.run.init_from, family);
  if (!model.is_preset() && family != "gpt2") model.name = family;
  if (model.sizes.index() == stored.index()) return;
  // Keeps sizes from flags for the comparison in adopt_sizes().
  const models::ModelSizes asked = std::exchange(model.sizes, stored);
  for (const auto& [size, flag] : models::named_sizes()) {
    int* const field = models::find_size(model.sizes, size);
    if (field == nullptr || !options.is_given(flag)) continue;
    const auto other = model.other_sizes.extract(size);
    *field = other ? other.mapped() : models::value_of(asked, size);
  }
}

/// Throws if --blocks or the preset contradicts the weights.
void check_blocks(const TrainOptions& options, models::ModelSizes& asked, models::ModelSizes& stored) {
  const auto* const wanted = models::find_blocks(asked);
  const auto* const there = models::find_blocks(stored);
  const bool is_asked = options.model.is_preset() || options.is_given("blocks");
  if (wanted == nullptr || there == nullptr || !is_asked || *wanted == *there) return;
  reject("--blocks {} do not match --init-from {}, which has {}; remove --blocks", fmt::join(*wanted, ","),
         options.run.init_from, fmt::join(*there, ","));
}

void adopt_sizes(TrainOptions& options, const models::Safetensors& weights, const models::ModelSizes& stored) {
  ModelOptions& model = options.model;
  const bool is_preset = model.is_preset();
  models::ModelSizes asked_sizes = model.sizes;
  for (const auto& [size, flag] : models::named_sizes()) {
    int* const field = models::find_size(asked_sizes, size);
    const bool is_asked = is_preset || options.is_given(flag) || size == models::Size::tile;
    if (field != nullptr && !is_asked) *field = models::value_of(stored, size);
  }
  asked_sizes = models::with_all_sizes(asked_sizes);
  model.sizes = models::with_all_sizes(stored);
  check_blocks(options, asked_sizes, model.sizes);
  for (const auto& [size, flag] : models::named_sizes()) {
    int* const there = models::find_size(model.sizes, size);
    const int asked = models::value_of(asked_sizes, size);
    if (there == nullptr || size == models::Size::sequence_length) continue;
    if (size == models::Size::tile) {
      *there = asked;
    } else if (size == models::Size::classes && *there == 0) {
      *there = asked;  // adds a classification head to weights of a masked model
    } else if (asked != *there && (is_preset || options.is_given(flag)) &&
               !(size == models::Size::classes && asked == 0 && !options.is_given(flag))) {
      reject("{} does not match --init-from {}, which has {}; remove the flag", asked_for(options, flag, asked),
             options.run.init_from, *there);
    }
  }
  if (float* const dropout = models::find_dropout(model.sizes); dropout != nullptr)
    *dropout = models::dropout_of(asked_sizes);
  if (models::reads_images(model.sizes)) return;  // image models have no positions
  int& length = *models::find_size(model.sizes, models::Size::sequence_length);
  const int positions = length, asked = models::value_of(asked_sizes, models::Size::sequence_length);
  const bool learned = models::learns_positions(model.sizes);
  if (is_preset || options.is_given("sequence-length")) {
    length = asked;
  } else if (!learned) {
    length = std::min(positions, usual_length);
  }
  if (length > positions)
    reject("{} exceeds the {} positions that --init-from {} {}; use at most {}",
           asked_for(options, "sequence-length", length), positions, options.run.init_from,
           learned ? "has learned" : "supports", positions);
  if (int* const rows = models::find_positions(model.sizes)) *rows = positions;
  if (length < positions)
    options.notes.push_back(
        learned
            ? fmt::format("positions: the first {} of the {} in {} are trained, the others stay unchanged", length,
                          positions, weights.path().string())
            : fmt::format("positions: {} of the {} that {} supports", length, positions, weights.path().string()));
}

void adopt_dropout(TrainOptions& options, const models::ModelConfig& config, const std::string& file) {
  if (options.is_given("dropout") || config.dropout.empty()) return;
  const float rate = config.dropout.begin()->second;
  std::vector<std::string> rates;
  for (const auto& [key, each] : config.dropout) rates.push_back(fmt::format("'{}' {}", key, each));
  if (std::ranges::any_of(config.dropout, [&](const auto& one) { return one.second != rate; }))
    reject("{} has different dropout rates, but all must be equal: {}; use --dropout", file,
           fmt::join(rates, ", "));
  *models::find_dropout(options.model.sizes) = rate;
  options.notes.push_back(fmt::format("dropout: {} (from {})", rate, file));
}

}  // namespace

void adopt_initial_weights(TrainOptions& options) {
  const RunOptions& run = options.run;
  if (run.init_from.empty()) {
    if (!run.ignored_tensors.empty())
      reject("--ignore-tensors {} needs weights; add --init-from PATH", run.ignored_tensors);
    return;
  }
  const models::Safetensors weights(models::find_weights(run.init_from, "--init-from"), run.ignored_tensors);
  if (!weights.ignored().empty())
    options.notes.push_back(fmt::format("--ignore-tensors: {} tensor{} of {} not read, the first is '{}'",
                                        weights.ignored().size(), weights.ignored().size() > 1 ? "s" : "",
                                        weights.path().string(), weights.ignored().front()));
  const fs::path config = folder_of(run.init_from) / "config.json";
  const bool heads_known = options.is_given("heads") || (options.model.is_preset() && !fs::exists(config));
  const int heads = options.model.size(models::Size::heads);
  const auto stored = models::stored_model(weights, heads_known ? std::optional(heads) : std::nullopt);
  if (!stored) return;
  adopt_family(options, stored->sizes);
  adopt_sizes(options, weights, stored->sizes);
  if (stored->config) adopt_dropout(options, *stored->config, config.string());
}

void choose_tokenizer(TrainOptions& options) {
  DataOptions& data = options.data;
  const int vocabulary = options.model.size(models::Size::vocab_size);
  const bool guessed = data.tokenizer == Tokenizer::bytes && !options.is_given("tokenizer") && !data.data.empty();
  const models::ModelSizes& sizes = options.model.sizes;
  const int with_mask = bytes_vocabulary + (models::fills_masks(sizes) || models::tells_classes(sizes) ? 1 : 0);
  if (!guessed || models::reads_images(sizes)) return;
  const fs::path folder = options.run.init_from.empty() ? fs::path() : folder_of(options.run.init_from);
  if (!folder.empty() && models::has_tokenizer(folder)) {
    data.tokenizer = Tokenizer::gpt2;
    data.gpt2 = folder.string();
    options.notes.push_back(fmt::format("tokenizer: {} (next to the weights)", data.gpt2));
    return;
  }
  if (vocabulary <= with_mask) return;
  constexpr const char* remedy =
      "add --tokenizer PATH, or --tokenizer bytes if its tokens are bytes, or use token files";
  if (!folder.empty()) {
    reject("--data {} is text, but the model of --init-from {} has {} tokens and no tokenizer next to it; {}",
           data.data, options.run.init_from, vocabulary, remedy);
  } else if (options.model.is_preset()) {
    reject("--data {} is text, but --model {} has {} tokens and no tokenizer; {}", data.data, options.model.name,
           vocabulary, remedy);
  } else {
    options.notes.push_back(
        fmt::format("tokenizer: bytes ({} of the {} tokens of --vocab-size)", bytes_vocabulary, vocabulary));
  }
}

std::map<std::string, std::string> files_beside_weights(const TrainOptions& options) {
  const RunOptions& run = options.run;
  if (run.save.empty()) return {};
  std::map<std::string, fs::path> paths;
  if (!options.data.gpt2.empty()) paths = models::tokenizer_files(options.data.gpt2);
  if (!run.init_from.empty()) {
    const fs::path folder = folder_of(run.init_from);
    if (options.data.tokenizer == Tokenizer::none) paths = models::tokenizer_files(folder);
    if (const fs::path generation = folder / "generation_config.json"; fs::exists(generation))
      paths[generation.filename()] = generation;
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, path] : paths) files[name] = runtime::MemoryMap(path).text();
  return files;
}

std::string generation_config(const models::ModelSizes& model, const models::Tokenizer& tokenizer) {
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (!end || models::fills_masks(model) || models::tells_classes(model)) return {};
  // As in GPT-2, the end-of-text token also begins a text if the tokenizer has no other token for it.
  const std::vector<std::int32_t>& beginning = tokenizer.around().beginning;
  const std::int32_t begin =
      beginning.empty() ? tokenizer.specials().begin_of_text.value_or(*end) : beginning.front();
  return fmt::format("{{\n  \"bos_token_id\": {},\n  \"eos_token_id\": {}\n}}\n", begin, *end);
}

std::vector<std::string> stored_labels(const TrainOptions& options) {
  const std::string text = initial_config(options);
  if (text.empty()) return {};
  const fs::path path = folder_of(options.run.init_from) / "config.json";
  if (!models::tells_classes(models::parse_model_config(text, path).sizes)) return {};
  return models::read_labels(models::ConfigFile(text, path));
}

std::string initial_config(const TrainOptions& options) {
  if (options.run.init_from.empty()) return {};
  const fs::path config = folder_of(options.run.init_from) / "config.json";
  return fs::exists(config) ? std::string(runtime::MemoryMap(config).text()) : std::string();
}

}  // namespace ranvier::apps
