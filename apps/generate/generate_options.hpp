// Options of ranvier-generate from flags and a config file, checked as far as possible without weights. Callable from
// any thread.
#pragma once

#include "apps/program/device_flag.hpp"
#include "apps/program/manual.hpp"
#include "models/generation/sampler.hpp"
#include "models/tokenizers/added_tokens.hpp"
#include "runtime/base/dtype.hpp"

#include <optional>
#include <string>

namespace ranvier::apps {

struct GenerateOptions {
  std::string weights;          ///< path
  std::string ignored_tensors;  ///< regular expression for tensor names; empty: none
  int heads = 0;                ///< attention heads; 0: value of config.json
  std::string tokenizer;        ///< "bytes" or "PATH"; empty: tokenizer next to the weights, or bytes
  std::string prompt;           ///< "-": stdin; empty: content of prompt_file
  std::string adapter;          ///< folder; empty: none
  std::string prompt_file;      ///< path; both empty: begin- or end-of-text token, or a newline
  int tokens = 200;             ///< maximum number of generated tokens per text
  int texts = 1;
  int context = 4096;       ///< positions in the cache, for models without learned positions
  bool begins_text = true;  ///< adds the tokenizer's begin-of-text tokens before the prompt
  models::SpecialTokenPolicy specials = models::SpecialTokenPolicy::tokenizer;
  bool ignores_end_of_text = false;
  models::SamplingOptions sampling;
  runtime::DType precision = runtime::DType::f32;  ///< valid if precision_given
  bool precision_given = false;                    ///< false: default of the device
  DeviceFlag device = DeviceFlag::cpu;
  std::optional<int> gpu;  ///< GPU number; none: the first GPU
  int threads = 0;         ///< compute threads; 0: one per core
  std::string config;
  InfoRequest info;
};

/// Throws ErrorCode::usage with flag, value and remedy. With an info request (--help), skips the checks.
[[nodiscard]] GenerateOptions parse_generate_options(int argc, const char* const* argv);

/// Prompt from the flag, a file or stdin, without a final newline. Throws ErrorCode::io with the flag if the prompt is
/// empty or unreadable.
[[nodiscard]] std::string read_prompt(const GenerateOptions& options);

[[nodiscard]] Manual generate_manual();

}  // namespace ranvier::apps
