// What ranvier-tokenize was asked for. Pure; any thread.
#pragma once

#include "apps/program/manual.hpp"
#include "models/text/data_file.hpp"
#include "models/text/special_token_policy.hpp"
#include "models/text/token_output.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ranvier::apps {

enum class EndOfText { between, after_each, none };

struct TokenizeOptions {
  std::vector<std::string> inputs;  ///< files and folders
  models::TextReading reading{.format_flag = "--input-format", .needs_utf8 = true};
  std::string output;
  std::string tokenizer;  ///< as given: "PATH" or "gpt2:PATH"
  models::TokenOutputFormat format = models::TokenOutputFormat::llmc;
  EndOfText end_of_text = EndOfText::between;
  models::SpecialTokenPolicy specials = models::SpecialTokenPolicy::tokenizer;
  bool overwrite = false;
  int threads = 0;  ///< 0: the machine's
  std::size_t checkpoint_bytes = std::size_t{256} << 20;
  InfoRequest info;
};

/// Throws ErrorCode::usage.
[[nodiscard]] TokenizeOptions parse_tokenize_options(int argc, const char* const* argv);
[[nodiscard]] Manual tokenize_manual();
/// What decides which tokens come out, beside the inputs' content.
[[nodiscard]] std::vector<runtime::ResolvedOption> deciding_options(const TokenizeOptions& options);

/// PATH of "PATH" and of "gpt2:PATH", which is the same; empty for "bytes", "none", and a word that is no path: no file
/// or folder, and neither with a slash nor with a dot.
[[nodiscard]] std::string tokenizer_path(const std::string& tokenizer);

/// --special-tokens of the programs that encode text.
void declare_special_tokens(runtime::OptionTable& table, models::SpecialTokenPolicy& field);

}  // namespace ranvier::apps
