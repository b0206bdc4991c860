#include "apps/tokenize/tokenize_options.hpp"

#include "runtime/host/cores.hpp"

#include <filesystem>

namespace ranvier::apps {

namespace {

using models::SpecialTokenPolicy;
using models::TokenOutputFormat;

OptionBinding tokenizer(std::string& field) {
  return only_if(text(field), field, "the PATH of a tokenizer folder or file",
                 [](const std::string& given) { return !tokenizer_path(given).empty(); });
}

OptionTable declare(TokenizeOptions& options) {
  OptionTable table;
  table.concern("Text");
  table.rest(options.inputs);
  table.add(
      {"input-format", "NAME",
       "Format of the input: auto, text (any bytes, one document per file), jsonl (one JSON object per line); gzip "
       "and zstd are decompressed",
       choice<models::TokenFormat>(options.reading.format, {{"auto", models::TokenFormat::automatic},
                                                            {"text", models::TokenFormat::text},
                                                            {"jsonl", models::TokenFormat::jsonl}})});
  table.add({"json-field", "NAME", "JSON lines: field with the document's text", text(options.reading.json_field)});
  table.add({"tokenizer", "PATH",
             "Tokenizer: a folder or file (tokenizer.json, tokenizer.model of SentencePiece, encoder.json and "
             "vocab.bpe, vocab.txt, .tiktoken)",
             tokenizer(options.tokenizer), "none"});
  table.add({"end-of-text", "WHERE",
             "Position of the end-of-text token (<|endoftext|>, </s>): between documents, after each, or none; not "
             "repeated if the tokenizer's template adds one, too",
             choice<EndOfText>(options.end_of_text, {{"between", EndOfText::between},
                                                     {"after-each", EndOfText::after_each},
                                                     {"none", EndOfText::none}})});
  table.add(special_tokens(options.specials));
  table.add({"spelled-specials", "AS", "Older name of --special-tokens: token means tokenizer, text means none",
             choice<SpecialTokenPolicy>(
                 options.specials, {{"text", SpecialTokenPolicy::none}, {"token", SpecialTokenPolicy::tokenizer}}),
             "as --special-tokens"});
  table.concern("Output");
  table.add({"output", "FILE", "Token file to write: FILE.bin, and FILE.idx with megatron (-o for short)",
             text(options.output), "none"});
  table.add({"output-format", "NAME",
             "Format of the token file: llmc (.bin with a header, uint16) or megatron (.bin and .idx)",
             choice<TokenOutputFormat>(
                 options.format, {{"llmc", TokenOutputFormat::llmc}, {"megatron", TokenOutputFormat::megatron}})});
  table.add({"overwrite", "", "Replace existing token files", switch_on(options.overwrite)});
  table.concern("Run");
  table.add({"threads", "N", "Number of threads that encode; 0: one per core", whole(options.threads, 0, 1024)});
  table.add({"checkpoint", "SIZE",
             "Amount of text between two checkpoints; an interrupted run continues from the last one",
             bytes(options.checkpoint_bytes)});
  declare_info(table, options.info);
  return table;
}

}  // namespace

Option special_tokens(SpecialTokenPolicy& field) {
  return {"special-tokens", "NAME",
          "Special tokens (<s>, <|user|>): tokenizer: in texts and around texts, as transformers does; text: "
          "only around texts; none: nowhere",
          choice<SpecialTokenPolicy>(field, {{"tokenizer", SpecialTokenPolicy::tokenizer},
                                             {"text", SpecialTokenPolicy::text},
                                             {"none", SpecialTokenPolicy::none}})};
}

std::string tokenizer_path(const std::string& tokenizer) {
  constexpr std::string_view family = "gpt2:";
  if (tokenizer.starts_with(family)) return tokenizer.substr(family.size());
  std::error_code ignored;
  const bool is_word =
      tokenizer.find_first_of("./") == std::string::npos && !std::filesystem::exists(tokenizer, ignored);
  return tokenizer == "bytes" || tokenizer == "none" || is_word ? "" : tokenizer;
}

TokenizeOptions parse_tokenize_options(int argc, const char* const* argv) {
  TokenizeOptions options;
  OptionTable table = declare(options);
  table.parse(argc, argv);
  if (options.info.any()) return options;
  if (table.given("special-tokens") && table.given("spelled-specials"))
    reject("--spelled-specials cannot be combined with --special-tokens; remove --spelled-specials");
  if (options.inputs.empty()) reject("input is missing; add files or folders of text");
  if (options.tokenizer.empty()) reject("--tokenizer is missing; add --tokenizer PATH, a folder or file");
  if (options.output.empty()) reject("--output is missing; add --output FILE");
  if (options.threads == 0) options.threads = runtime::available_cores();
  return options;
}

Manual tokenize_manual() {
  TokenizeOptions options;
  return {.program = "ranvier-tokenize",
          .summary = "converts text to token files; a text file or a line of JSON lines (.jsonl) is one document",
          .forms = {{"ranvier-tokenize FILE|FOLDER... --tokenizer PATH --output FILE [OPTION...]", ""}},
          .about =
              "Files keep the given order; text files of a folder are sorted by path. Files may be compressed "
              "(gzip, zstd). To continue an interrupted run, repeat the command.",
          .options = declare(options).facts(),
          .arguments = PathKind::any};
}

std::vector<ResolvedOption> deciding_options(const TokenizeOptions& options) {
  TokenizeOptions copy = options;
  auto all = declare(copy).resolved();
  std::erase_if(all, [](const ResolvedOption& option) {
    return option.concern == "Run" || option.name == "output" || option.name == "overwrite" ||
           option.name == "spelled-specials" ||  // a name of another option
           is_info_request(option.name);
  });
  return all;
}

}  // namespace ranvier::apps
