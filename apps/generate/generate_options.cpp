#include "apps/generate/generate_options.hpp"

#include "apps/tokenize/tokenize_options.hpp"
#include "apps/program/options.hpp"

#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

namespace ranvier::apps {
namespace {

using runtime::DType;

OptionBinding tokenizer(std::string& field) {
  return only_if(text(field), field, "bytes, or the PATH of a tokenizer folder or file",
                 [](const std::string& given) { return given == "bytes" || !tokenizer_path(given).empty(); });
}

OptionTable declare(GenerateOptions& options) {
  OptionTable table;
  table.concern("Model");
  table.add({"weights", "PATH", "Weights: a safetensors file, or a folder with model.safetensors and config.json",
             text(options.weights)});
  table.add({"adapter", "FOLDER", "Folder of an adapter for the weights, written by PEFT or ranvier-train --save",
             text(options.adapter), "none"});
  table.add({"ignore-tensors", "REGEX", "Skip tensors whose name contains a match", text(options.ignored_tensors)});
  table.add({"heads", "H", "Number of attention heads if there is no config.json", whole(options.heads, 0, 1 << 20),
             "config.json's"});
  table.add({"precision", "TYPE", "Type of weights and cache in memory: fp32, bf16 or fp16",
             choice<DType>(options.precision, {{"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}}),
             default_precision_text});
  table.add({"tokenizer", "bytes|PATH",
             "Tokenizer: bytes, or a folder or file (tokenizer.json, tokenizer.model of SentencePiece, "
             "encoder.json and vocab.bpe, vocab.txt, .tiktoken)",
             tokenizer(options.tokenizer), "the tokenizer next to the weights, or bytes"});
  table.concern("Text");
  table.add({"prompt", "TEXT", "Prompt; - reads the prompt from stdin, without the last newline",
             text(options.prompt), "the BOS or end-of-text token; with --tokenizer bytes a newline"});
  table.add(
      {"prompt-file", "FILE", "File with the prompt; a newline at the end is removed", text(options.prompt_file)});
  table.add({"begin-of-text", "on|off", "Put the tokenizer's BOS token before the prompt, as transformers does",
             choice<bool>(options.begins_text, {{"on", true}, {"off", false}})});
  table.add(special_tokens(options.specials));
  table.add({"tokens", "N", "Largest number of tokens to generate", whole(options.tokens, 0)});
  table.add({"context", "N", "Largest context in tokens, at most the model's; GPT-2 always uses the model's",
             whole(options.context, 1, 1 << 24)});
  table.add({"num-samples", "N", "Number of texts to generate", whole(options.texts, 1)});
  table.add(
      {"ignore-end-of-text", "", "Continue after the end-of-text token", switch_on(options.ignores_end_of_text)});
  auto& sampling = options.sampling;
  table.add({"temperature", "X", "Sampling temperature; 0 always chooses the most likely token",
             real(sampling.temperature, 0)});
  table.add({"top-k", "K", "Sample among the K most likely tokens; 0: among all", whole(sampling.top_k, 0)});
  table.add(
      {"top-p", "P", "Sample among the fewest tokens whose probabilities reach P", real(sampling.top_p, 0, 1)});
  table.add({"seed", "N", "Random seed for sampling", whole(sampling.seed, 0)});
  table.concern("Run");
  table.add({"device", "NAME", "cpu; cuda: the first GPU; cuda:N: GPU N; inline: the calling thread",
             device_flag(options.device, options.gpu)});
  table.add({"threads", "N", "Compute threads; 0: one per core. The text is the same for any number",
             whole(options.threads, 0, 4096)});
  table.add(
      {"config", "FILE", "Read options from lines of key = value; flags have precedence", text(options.config)});
  declare_info(table, options.info);
  return table;
}

}  // namespace

GenerateOptions parse_generate_options(int argc, const char* const* argv) {
  GenerateOptions options;
  OptionTable table = declare(options);
  table.parse(argc, argv);
  options.precision_given = table.given("precision");
  if (options.info.any()) return options;
  if (options.weights.empty())
    reject("--weights is missing; add --weights PATH, from ranvier-train --save or Hugging Face");
  if (!options.prompt.empty() && !options.prompt_file.empty())
    reject("--prompt '{}' cannot be combined with --prompt-file {}; remove one of the flags", options.prompt,
           options.prompt_file);
  if (options.sampling.top_p == 0) reject("--top-p 0 selects no tokens; use a value above 0, or --temperature 0");
  return options;
}

std::string read_prompt(const GenerateOptions& options) {
  const bool from_stdin = options.prompt == "-";
  if (!from_stdin && options.prompt_file.empty()) return options.prompt;
  std::ifstream file;
  if (!from_stdin) file.open(options.prompt_file, std::ios::binary);
  std::istream& from = from_stdin ? std::cin : file;
  std::ostringstream read;
  read << from.rdbuf();
  std::string prompt = read.str();
  for (const char* end : {"\r\n", "\n"}) {
    if (!prompt.ends_with(end)) continue;
    prompt.resize(prompt.size() - std::strlen(end));
    break;
  }
  if (prompt.empty())
    fail(ErrorCode::io, "{} is empty or unreadable; use another prompt, or remove the flag",
         from_stdin ? "--prompt -" : "--prompt-file " + options.prompt_file);
  return prompt;
}

Manual generate_manual() {
  GenerateOptions options;
  return {.program = "ranvier-generate",
          .summary = "generates text with a trained model and prints it to stdout",
          .forms = {{"ranvier-generate --weights FOLDER --prompt 'Once upon'", ""}},
          .options = declare(options).facts()};
}

}  // namespace ranvier::apps
