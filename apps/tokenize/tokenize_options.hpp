// What ranvier-tokenize was asked for. Pure; any thread.
#pragma once

#include "models/text/bpe_encoder.hpp"
#include "models/text/data_file.hpp"
#include "models/text/token_output.hpp"
#include "runtime/options.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ranvier::apps {

enum class EndOfText { between, after_each, none };

struct TokenizeOptions {
  std::vector<std::string> inputs;  ///< files and folders
  models::TextReading reading{.format_flag = "--input-format"};
  std::string output;
  std::string tokenizer;  ///< as given: "gpt2:DIR"
  models::TokenOutputFormat format = models::TokenOutputFormat::llmc;
  EndOfText end_of_text = EndOfText::between;
  models::SpelledSpecials specials = models::SpelledSpecials::text;
  int threads = 0;  ///< 0: the machine's
  std::size_t checkpoint_bytes = std::size_t{256} << 20;
  bool help = false, version = false;
};

/// Throws ErrorCode::usage.
[[nodiscard]] TokenizeOptions parse_tokenize_options(int argc, const char* const* argv);
[[nodiscard]] std::string tokenize_help();
/// What decides which tokens come out, beside the inputs' content.
[[nodiscard]] std::vector<runtime::ResolvedOption> deciding_options(const TokenizeOptions& options);

/// DIR of "gpt2:DIR"; empty if `tokenizer` is none of that form.
[[nodiscard]] std::string gpt2_path(const std::string& tokenizer);

}  // namespace ranvier::apps
