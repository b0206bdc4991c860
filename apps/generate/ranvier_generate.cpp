// ranvier-generate: generates text with a trained model. Text goes to stdout, everything else to stderr.
#include "apps/generate/generate_options.hpp"
#include "apps/program/device_flag.hpp"
#include "apps/program/print_error.hpp"
#include "apps/tokenize/tokenize_options.hpp"
#include "models/families/adapter_files.hpp"
#include "models/families/model.hpp"
#include "models/generation/generator.hpp"
#include "models/tokenizers/document_frame.hpp"
#include "models/tokenizers/tokenizer.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/tokenizers/unicode.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/base/error.hpp"
#include "runtime/host/cores.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace {

using namespace ranvier;
using apps::GenerateOptions;
using Clock = std::chrono::steady_clock;

constexpr const char* separator = "---------------\n";  // between texts

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Reads the adapter; none if `folder` is empty.
std::optional<models::AdapterMerge> read_adapter(const std::string& folder, const models::ModelSizes& sizes) {
  if (folder.empty()) return std::nullopt;
  models::Tuning tuning;
  tuning.lora = std::make_shared<const models::LoraOptions>(models::read_adapter_config(folder));
  const auto adapters = models::adapter_units(models::make_model(sizes, tuning).units());
  return std::make_optional<models::AdapterMerge>(*tuning.lora, sizes, adapters,
                                                  models::open_adapter(folder, adapters));
}

struct Model {
  std::filesystem::path folder;
  int vocab_size = 0;
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<models::Decoder> decoder;
};

Model load(const GenerateOptions& options) {
  const auto begin = Clock::now();
  const models::Safetensors file(models::find_weights(options.weights, "--weights"), options.ignored_tensors);
  Model model;
  model.folder = file.path().has_parent_path() ? file.path().parent_path() : ".";
  const auto stored = models::stored_model(file, options.heads > 0 ? std::optional(options.heads) : std::nullopt);
  if (!stored)
    fail(ErrorCode::data,
         "config.json is missing next to {}, whose tensors are not GPT-2's; copy the model's config.json to the "
         "same folder",
         file.path().string());
  models::ModelSizes sizes = stored->sizes;
  const char* const other = models::fills_masks(sizes)     ? "a masked language model"
                            : models::tells_classes(sizes) ? "a text classification model"
                            : models::reads_images(sizes)  ? "an image model"
                                                           : nullptr;
  if (other != nullptr)
    apps::reject("--weights {}: {} is {} and cannot generate text; use weights of GPT-2 or LLaMA", options.weights,
                 models::family_name(sizes), other);
  const runtime::DType precision =
      options.precision_given ? options.precision : apps::default_precision(options.device, options.gpu);
  models::set_precision(sizes, {precision, precision});
  // Without learned positions, the model may support more positions than fit the cache.
  if (!models::learns_positions(sizes)) {
    int& length = *models::find_size(sizes, models::Size::sequence_length);
    length = std::min(length, options.context);
  }
  model.vocab_size = models::value_of(sizes, models::Size::vocab_size);
  const models::Architecture architecture = models::make_model(sizes);
  models::check_weights(file, architecture.units());
  const std::optional<models::AdapterMerge> adapter = read_adapter(options.adapter, sizes);
  const int threads = options.threads > 0 ? options.threads : runtime::available_cores();
  model.device = apps::make_device(options.device, {.ordinal = options.gpu.value_or(0)}, {.threads = threads});
  model.decoder = std::make_unique<models::Decoder>(
      *model.device, models::decoder_model(sizes),
      [&file, &adapter](const models::UnitSpec& unit, std::size_t first, std::span<float> out) {
        models::read_unit(file, unit, first, first + out.size(), out.data());
        if (adapter) adapter->add(unit, first, out);
      });
  fmt::print(stderr, "{}: {}, {:.2f}M parameters in {}, loaded in {:.1f} s; {}\n", file.path().string(),
             architecture.name, 1e-6 * static_cast<double>(architecture.parameters()), to_string(precision),
             seconds_since(begin), model.device->description());
  if (!file.ignored().empty())
    fmt::print(stderr, "ignored tensors: {}, first '{}'\n", file.ignored().size(), file.ignored().front());
  return model;
}

models::Tokenizer open_tokenizer(const GenerateOptions& options, const Model& model) {
  const std::string path = apps::tokenizer_path(options.tokenizer);
  models::Tokenizer tokenizer;
  if (!path.empty()) {
    tokenizer = models::read_tokenizer(path);
  } else if (options.tokenizer.empty() && models::has_tokenizer(model.folder)) {
    tokenizer = models::read_tokenizer(model.folder);
  } else if (options.tokenizer.empty() && model.vocab_size > tokenizer.size()) {
    apps::reject(
        "model has {} tokens, but {} has no tokenizer; add --tokenizer PATH, or --tokenizer bytes if the model "
        "was trained on bytes",
        model.vocab_size, model.folder.string());
  }
  // A tokenizer next to the weights may have more tokens, which are not sampled.
  const bool beside = options.tokenizer.empty() && models::has_tokenizer(model.folder);
  if (model.vocab_size < tokenizer.size() && !beside)
    apps::reject("model has {} tokens, but the tokenizer has {}; use the --tokenizer of the model's training",
                 model.vocab_size, tokenizer.size());
  return tokenizer;
}

/// Writes complete UTF-8 characters to stdout as their bytes arrive. Invalid bytes are written unchanged.
class TextOutput {
 public:
  void add(std::string_view bytes) {
    held_ += bytes;
    const std::size_t whole = held_.size() - models::unfinished_bytes(held_);
    put(std::string_view(held_).substr(0, whole));
    held_.erase(0, whole);
  }
  /// Ends the text: writes incomplete bytes and a newline.
  void end() {
    put(held_ + "\n");
    held_.clear();
  }

 private:
  static void put(std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!written || std::fflush(stdout) != 0) fail(ErrorCode::io, "stdout cannot be written");
  }

  std::string held_;
};

struct Drawn {
  int tokens = 0;
  int before_slide = 0;  ///< tokens until the context was full; 0: never full
  double prompt_seconds = 0, seconds = 0;
};

Drawn write_text(const GenerateOptions& options, const models::Tokenizer& tokenizer, models::Decoder& decoder,
                 const models::SamplingOptions& sampling, std::span<const std::int32_t> prompt,
                 TextOutput& output) {
  const auto begin = Clock::now();
  models::Generator generator(decoder, sampling, prompt);
  Drawn drawn{.prompt_seconds = seconds_since(begin)};
  const auto drawing = Clock::now();
  while (drawn.tokens < options.tokens) {
    const std::int32_t token = generator.next();
    ++drawn.tokens;
    if (generator.slides() > 0 && drawn.before_slide == 0) drawn.before_slide = drawn.tokens - 1;
    if (token == tokenizer.end_of_text() && !options.ignores_end_of_text) break;
    std::string bytes;
    tokenizer.decode(token, bytes);
    output.add(bytes);
  }
  drawn.seconds = seconds_since(drawing);
  return drawn;
}

int generate(const GenerateOptions& options) {
  const std::string given = apps::read_prompt(options);
  Model model = load(options);
  const models::Tokenizer tokenizer = open_tokenizer(options, model);
  const models::DocumentFrame frame =
      options.begins_text ? models::DocumentFrame(tokenizer, options.specials) : models::DocumentFrame();
  const auto [text, prompt] = models::make_prompt(given, tokenizer, options.specials, frame);

  models::SamplingOptions sampling = options.sampling;
  sampling.tokens = std::min(tokenizer.size(), model.vocab_size);
  for (const std::int32_t token : prompt) {
    if (token >= model.vocab_size)
      apps::reject(
          "prompt contains token id {}, but the model's vocabulary has {} tokens; use another prompt or "
          "--tokenizer",
          token, model.vocab_size);
  }
  TextOutput output;
  Drawn all;
  for (int i = 0; i < options.texts; ++i) {
    sampling.text = static_cast<std::uint32_t>(i);
    if (i > 0) output.add(separator);
    output.add(text);
    const Drawn one = write_text(options, tokenizer, *model.decoder, sampling, prompt, output);
    output.end();
    all.tokens += one.tokens;
    all.seconds += one.seconds;
    all.prompt_seconds += one.prompt_seconds;
    all.before_slide = std::max(all.before_slide, one.before_slide);
  }
  if (all.before_slide > 0)
    fmt::print(stderr, "the context of {1} was full after {0} tokens; later tokens use only the last {2} to {3}\n",
               all.before_slide, model.decoder->context(), (model.decoder->context() + 1) / 2,
               model.decoder->context());
  fmt::print(stderr, "prompt: {} tokens in {:.1f} ms; then {} tokens in {:.2f} s: {:.1f} tokens/s\n", prompt.size(),
             1e3 * all.prompt_seconds / options.texts, all.tokens, all.seconds,
             all.tokens / std::max(all.seconds, 1e-9));
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("ranvier-generate", argc, argv, apps::parse_generate_options, apps::generate_manual,
                           generate);
}
