// Options of ranvier-tokenize. Pure functions, callable from any thread.
#pragma once

#include "apps/program/manual.hpp"
#include "models/text/data_file.hpp"
#include "models/text/token_output.hpp"
#include "models/tokenizers/added_tokens.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ranvier::apps {

enum class EndOfText { between, after_each, none };

struct TokenizeOptions {
  std::vector<std::string> inputs;  ///< files and folders
  models::TextReading reading{.format_flag = "--input-format", .needs_utf8 = true};
  std::string output;
  std::string tokenizer;  ///< value of the flag: "PATH" or "gpt2:PATH"
  models::TokenOutputFormat format = models::TokenOutputFormat::llmc;
  EndOfText end_of_text = EndOfText::between;
  models::SpecialTokenPolicy specials = models::SpecialTokenPolicy::tokenizer;
  bool overwrite = false;
  int threads = 0;  ///< encoding threads; parse_tokenize_options() replaces 0 by the number of cores
  std::size_t checkpoint_bytes = std::size_t{256} << 20;
  InfoRequest info;
};

/// Throws ErrorCode::usage.
[[nodiscard]] TokenizeOptions parse_tokenize_options(int argc, const char* const* argv);
[[nodiscard]] Manual tokenize_manual();
/// Options that affect the tokens, apart from the input's content.
[[nodiscard]] std::vector<ResolvedOption> deciding_options(const TokenizeOptions& options);

/// PATH of "PATH" or of its synonym "gpt2:PATH". Empty for "bytes", "none", and a word without slash or dot that names
/// no file or folder.
[[nodiscard]] std::string tokenizer_path(const std::string& tokenizer);

/// --special-tokens, for programs that encode text.
[[nodiscard]] Option special_tokens(models::SpecialTokenPolicy& field);

}  // namespace ranvier::apps
