// What ranvier-generate was asked to do, filled from flags and a config file and checked as far as that needs no
// weights.
#pragma once

#include "apps/program/device_flag.hpp"
#include "apps/program/manual.hpp"
#include "models/generation/sampler.hpp"
#include "models/text/special_token_policy.hpp"
#include "runtime/dtype.hpp"

#include <optional>
#include <string>

namespace ranvier::apps {

struct GenerateOptions {
  std::string weights;          ///< path
  std::string ignored_tensors;  ///< a regular expression for names; empty: none
  int heads = 0;                ///< 0: as the config.json beside the weights says
  std::string tokenizer;        ///< "bytes" or "PATH"; empty: what lies beside the weights, or bytes
  std::string prompt;           ///< "-": what stdin has. Empty: prompt_file's
  std::string adapter;          ///< folder; empty: none
  std::string prompt_file;      ///< empty: what stands before a text, the end of one, or a new line
  int tokens = 200;             ///< to draw for each text
  int texts = 1;
  int context = 4096;       ///< positions that the cache has room for, of models that learned none
  bool begins_text = true;  ///< by what the tokenizer puts before texts
  models::SpecialTokenPolicy specials = models::SpecialTokenPolicy::tokenizer;
  bool ignores_end_of_text = false;
  models::SamplingOptions sampling;
  runtime::DType precision = runtime::DType::f32;  ///< if precision_given
  bool precision_given = false;                    ///< else the device's default
  DeviceFlag device = DeviceFlag::cpu;
  std::optional<int> gpu;  ///< of cuda; none: the first
  int threads = 0;         ///< 0: one per core
  std::string config;
  InfoRequest info;
};

/// Throws ErrorCode::usage with a message that names flag, value and remedy. With an inquiry nothing else
/// is checked.
[[nodiscard]] GenerateOptions parse_generate_options(int argc, const char* const* argv);

/// How the text begins, read from a file or stdin where it was asked for, without a new line at its end. Throws
/// ErrorCode::io, naming the flag, if there is nothing to read.
[[nodiscard]] std::string read_prompt(const GenerateOptions& options);

[[nodiscard]] Manual generate_manual();

}  // namespace ranvier::apps
