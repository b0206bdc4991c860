// ranvier-generate: writes text that a trained GPT draws. Text goes to stdout, all else to stderr.
#include "apps/generate_options.hpp"
#include "models/generation/generator.hpp"
#include "models/weights/gpt_config.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/cuda_build.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace {

using namespace ranvier;
using apps::GenerateOptions;
using Clock = std::chrono::steady_clock;

constexpr const char* program = "ranvier-generate";
constexpr int byte_vocabulary = 256;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::unique_ptr<runtime::Device> make_device(const GenerateOptions& options) {
  if constexpr (runtime::with_cuda) {
    if (options.device == apps::DeviceChoice::cuda) return runtime::make_cuda_device({.ordinal = options.gpu.value_or(0)});
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const runtime::CpuDeviceOptions cpu{.threads = options.threads > 0 ? options.threads : cores};
  return options.device == apps::DeviceChoice::inline_ ? runtime::make_inline_device(cpu)
                                                       : runtime::make_cpu_device(cpu);
}

struct Model {
  models::GptOptions gpt;
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<models::GptDecoder> decoder;
};

Model load(const GenerateOptions& options) {
  const auto begin = Clock::now();
  const models::Safetensors file(models::find_weights(options.weights, "--weights"));
  Model model;
  model.gpt = models::stored_gpt(file, options.heads > 0 ? std::optional(options.heads) : std::nullopt);
  model.gpt.precision = {options.precision, options.precision};
  const models::Architecture architecture = models::make_gpt(model.gpt);
  models::check_weights(file, architecture.units());
  model.device = make_device(options);
  model.decoder = std::make_unique<models::GptDecoder>(
      *model.device, model.gpt, [&file](const models::UnitSpec& unit, std::size_t first, std::span<float> out) {
        models::read_unit(file, unit, first, first + out.size(), out.data());
      });
  fmt::print(stderr, "{}: {}, {:.2f}M parameters in {}, loaded in {:.1f} s; {}\n", file.path().string(),
             architecture.name, 1e-6 * static_cast<double>(architecture.parameters()), to_string(options.precision),
             seconds_since(begin), model.device->description());
  return model;
}

std::vector<std::int32_t> tokens_of(const std::string& text, const models::GptOptions& gpt) {
  if (gpt.vocab_size < byte_vocabulary)
    fail(ErrorCode::usage, "the model knows {} tokens, but bytes are {}: it was trained on other tokens",
         gpt.vocab_size, byte_vocabulary);
  std::vector<std::int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) fail(ErrorCode::io, "stdout takes no more text");
}

void generate(const GenerateOptions& options) {
  Model model = load(options);
  const std::vector<std::int32_t> prompt = tokens_of(options.prompt, model.gpt);
  put(options.prompt);
  const auto begin = Clock::now();
  models::Generator generator(*model.decoder, options.sampling, prompt);
  const double prompt_seconds = seconds_since(begin);
  const auto drawing = Clock::now();
  int slides = 0;
  for (int i = 0; i < options.tokens; ++i) {
    const std::int32_t token = generator.next();
    if (token < byte_vocabulary) put(std::string(1, static_cast<char>(token)));
    if (slides == 0 && generator.slides() > 0) slides = i;
  }
  const double seconds = seconds_since(drawing);
  put("\n");
  if (slides > 0)
    fmt::print(stderr,
               "after {} tokens the context of {} was full: from there on only the last {} to {} tokens count\n",
               slides, model.decoder->context(), (model.decoder->context() + 1) / 2, model.decoder->context());
  fmt::print(stderr, "prompt: {} tokens in {:.1f} ms; then {} tokens in {:.2f} s: {:.1f} tokens/s\n", prompt.size(),
             1e3 * prompt_seconds, options.tokens, seconds, options.tokens / std::max(seconds, 1e-9));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const GenerateOptions options = apps::parse_generate_options(argc, argv);
    if (options.help || options.version) {
      fmt::print("{}\n", options.help ? apps::generate_help() : fmt::format("{} {}", program, RANVIER_VERSION));
      return EXIT_SUCCESS;
    }
    generate(options);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: error: {}\n", program, error.what());
    return EXIT_FAILURE;
  }
}
