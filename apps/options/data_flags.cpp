#include "apps/options/flag_groups.hpp"

#include "apps/options/initial_weights.hpp"
#include "apps/tokenize/tokenize_options.hpp"
#include "models/families/adapter_files.hpp"
#include "models/families/model.hpp"
#include "models/text/document_reader.hpp"
#include "models/text/labelled_source.hpp"
#include "models/text/mixed_source.hpp"
#include "models/tokenizers/tokenizer_files.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

namespace ranvier::apps {
namespace {

using models::Documents;
using models::TokenFormat;

constexpr int byte_tokens = 256;

OptionBinding tokenizer(DataOptions& data) {
  const OptionBinding word =
      choice<Tokenizer>(data.tokenizer, {{"bytes", Tokenizer::bytes}, {"none", Tokenizer::none}});
  return parsed(
      "bytes, none, or the PATH of a tokenizer's folder or file",
      [word, &data](const std::string& given) {
        data.gpt2 = tokenizer_path(given);
        if (!data.gpt2.empty()) data.tokenizer = Tokenizer::gpt2;
        return !data.gpt2.empty() || !word.read(given);
      },
      [word, &data] { return data.tokenizer == Tokenizer::gpt2 ? data.gpt2 : word.write(); }, word.words);
}

/// Refuses flags that need training steps.
void check_eval_only(const TrainOptions& options) {
  const RunOptions& run = options.run;
  if (run.init_from.empty()) reject("--eval-only needs weights; add --init-from PATH");
  if (!run.save.empty())
    reject("--save {} has no effect with --eval-only, which changes no weights; remove --save", run.save);
  const std::int64_t samples = options.trainer.sample.every;
  for (const auto& [flag, value] : {std::pair{"--checkpoint", options.checkpoint.folder},
                                    {"--resume", options.checkpoint.resumes() ? options.checkpoint.resume : ""},
                                    {"--sample-every", samples > 0 ? fmt::format("{}", samples) : ""}}) {
    if (!value.empty())
      reject("{0} {1} has no effect with --eval-only, which trains no steps; remove {0}", flag, value);
  }
}

}  // namespace

void declare_data(TrainTable& table, DataOptions& data, actors::TrainerOptions& trainer,
                  const ModelOptions& model) {
  const NoEffect no_masks = unused_if([&model] { return !models::fills_masks(model.sizes); },
                                      "unless the model is trained to fill masks");
  const NoEffect no_samples = unused_if([&trainer] { return trainer.sample.every == 0; }, "without --sample-every");
  table.concern("Data");
  table.add({Effect::decides, "data", "PATH",
             "Training data: text or JSON lines (.jsonl), plain or compressed (gzip, zstd), a folder of such "
             "files, or a token file; several: PATH:WEIGHT,PATH:WEIGHT. Image models: a CIFAR-10 or CIFAR-100 "
             "binary file, a folder of such files, or synthetic",
             text(data.data)},
            {.also = "data-path data-dir dataset dataset-name dataset-path train-data-path train-file input-bin",
             .usual = true});
  table.add({Effect::decides, "tokenizer", "bytes|none|PATH",
             "Tokenizer of text: bytes, or a folder or file (tokenizer.json, tokenizer.model of SentencePiece, "
             "encoder.json and vocab.bpe, vocab.txt, .tiktoken); none: the data are tokens",
             tokenizer(data), "none for token files, otherwise the tokenizer next to --init-from, or bytes"},
            {.also = "vocab-file merge-file tokenizer-model tokenizer-name tokenizer-path tokenizer-name-or-path",
             .usual = true,
             .for_text = true});
  table.add({Effect::decides, "token-format", "NAME",
             "Format of --data: auto, text (any bytes), jsonl (one JSON object per line), llmc (header, then "
             "uint16 or uint32), uint16 (no header, as in nanoGPT), megatron (.bin and .idx)",
             choice<TokenFormat>(data.reading.format, {{"auto", TokenFormat::automatic},
                                                       {"text", TokenFormat::text},
                                                       {"jsonl", TokenFormat::jsonl},
                                                       {"llmc", TokenFormat::llmc},
                                                       {"uint16", TokenFormat::uint16},
                                                       {"megatron", TokenFormat::megatron}})},
            {.for_text = true});
  table.add({Effect::decides, special_tokens(data.specials)},
            {.unused = unused_if([&data] { return data.gpt2.empty(); }, "without --tokenizer PATH")});
  table.add({Effect::decides, "json-field", "NAME", "JSON lines: field with the document's text",
             text(data.reading.json_field)},
            {.for_text = true});
  table.add({Effect::decides, "prompt-field", "NAME",
             "JSON lines: field with the prompt, or several fields (A,B), joined by line breaks; --json-field has "
             "the completion. Prompts have no loss, and samples are packed as with --documents mask",
             text(data.reading.prompt_field), "none"},
            {.usual = true, .for_text = true});
  table.add({Effect::decides, "label-field", "NAME",
             "JSON lines: field with the class of the document's text, by name or number, for BERT and RoBERTa; "
             "each sample is one padded text",
             text(data.reading.label_field), "none"},
            {.for_text = true});
  table.add({Effect::decides, "documents", "NAME",
             "Documents in samples: join: cut anywhere; mask: tokens attend to their own document only, with "
             "positions from zero, and predict nothing across the document's end; pad (BERT, RoBERTa): one "
             "document per padded sample",
             choice<Documents>(data.documents,
                               {{"join", Documents::join}, {"mask", Documents::mask}, {"pad", Documents::pad}}),
             "join, or mask with --prompt-field"},
            {.for_text = true});
  table.add({Effect::decides, "document-end", "TOKEN",
             "Last token of each document in token files without an index, for --documents mask and pad",
             whole(data.document_end, 0, max_count), "the --tokenizer's end of text"},
            {.for_text = true});
  table.add({Effect::decides, "mlm-probability", "FRACTION",
             "Fraction of tokens selected for masked language modelling (BERT, RoBERTa): 80 % become the mask "
             "token, 10 % a random token, 10 % stay unchanged",
             // Every sample needs at least one token to predict.
             only_if(real(data.mlm_probability, 0, 1), data.mlm_probability, "a number above 0, at most 1",
                     [](double fraction) { return fraction > 0; })},
            {.for_text = true, .unused = no_masks});
  table.add(
      {Effect::decides, "mask-token", "N", "Token id of the mask; auto: the tokenizer's, or 256 for bytes",
       or_word(data.mask_token, "auto", {}, whole(data.mask_token, 0, max_count), "a token id, or auto"), "auto"},
      {.for_text = true, .unused = no_masks});
  table.add({Effect::decides, "shuffle", "on|off", "Train on samples in random order, different in each epoch",
             toggle(data.shuffle)});
  table.add({Effect::decides, "augment", "on|off",
             "Image models: train on random crops with a border of 4 black pixels, half of them mirrored; "
             "validation images stay unchanged",
             toggle(data.augment)});
  table.add({Effect::decides, "validation-split", "FRACTION",
             "Fraction of the data, taken from the end, for validation instead of training",
             real(data.validation_split, 0, 1, true), "0, or 0.1 with --eval-every"},
            {.also = "split val-split", .usual = true});
  table.add({Effect::tells, "eval-every", "STEPS", "Validate every N steps; 0 disables",
             whole(trainer.eval_every, 0), "0, or at the end with --validation-split or --hellaswag"},
            {.also = "eval-interval eval-steps", .usual = true});
  table.add({Effect::tells, "eval-samples", "N",
             "Validate on the first N samples of the validation part; 0: on all", whole(data.eval_samples, 0)},
            {.also = "eval-iters"});
  table.add(
      {Effect::run, "eval-only", "",
       "Only evaluate the weights of --init-from: on all data, or on the part that --validation-split selects",
       switch_on(data.eval_only)});
  table.add(
      {Effect::tells, "hellaswag", "FILE",
       "File of multiple-choice questions in llm.c's format, answered at each validation", text(data.hellaswag)},
      {.for_text = true});
  table.add({Effect::tells, "sample-every", "STEPS", "Generate text every N steps and at the end; 0 disables",
             whole(trainer.sample.every, 0)},
            {.usual = true, .for_text = true});
  table.add({Effect::tells, "sample-prompt", "TEXT", "Prompt of the texts that --sample-every generates",
             text(data.sample_prompt), "the BOS or end-of-text token; with --tokenizer bytes a newline"},
            {.for_text = true, .unused = no_samples});
  table.add({Effect::tells, "sample-tokens", "N", "Tokens of each text that --sample-every generates",
             whole(trainer.sample.tokens, 1, max_count)},
            {.for_text = true, .unused = no_samples});
}

namespace {

/// Checks and resolves flags of labelled texts (--label-field).
void resolve_labelled(TrainOptions& options) {
  DataOptions& data = options.data;
  if (!data.reading.prompt_field.empty())
    reject("--label-field {} and --prompt-field {} cannot be combined; remove one of the flags",
           data.reading.label_field, data.reading.prompt_field);
  if (data.reading.label_field == data.reading.json_field)
    reject("--label-field {} and --json-field {} are the same field; use different fields",
           data.reading.label_field, data.reading.json_field);
  for (const char* flag : {"documents", "document-end", "mlm-probability", "mask-token"})
    if (options.is_given(flag))
      reject("--{0} has no effect with --label-field {1}: each sample is one padded text; remove --{0}", flag,
             data.reading.label_field);
  if (data.tokenizer == Tokenizer::none && options.is_given("tokenizer"))
    reject("--tokenizer none cannot read the texts of --label-field {}; use --tokenizer bytes or PATH",
           data.reading.label_field);
  if (models::parse_weighted_paths(data.data).size() > 1)
    reject("--data {} has several paths, but --label-field {} reads one; put the files into one folder", data.data,
           data.reading.label_field);
  data.documents = Documents::pad;
}

/// Disables the tokenizer for an image model. Throws ErrorCode::usage if a flag for text is given.
void resolve_images(TrainOptions& options) {
  for (const std::string& flag : options.given)
    if (traits_of(flag).for_text)
      reject("--{0} is for text, but --model {1} reads images; remove --{0}", flag, options.model.name);
  options.data.tokenizer = Tokenizer::none;
}

void resolve_text(TrainOptions& options) {
  DataOptions& data = options.data;
  ModelOptions& model = options.model;
  const auto paths = models::parse_weighted_paths(data.data);
  const bool tokens = std::ranges::all_of(
      paths, [&](const models::WeightedPath& one) { return models::holds_tokens(one.path, data.reading.format); });
  if (!options.is_given("tokenizer")) data.tokenizer = tokens ? Tokenizer::none : Tokenizer::bytes;
  const bool text = data.reading.format == TokenFormat::text || data.reading.format == TokenFormat::jsonl;
  if (text && data.tokenizer == Tokenizer::none)
    reject("--tokenizer none cannot read --token-format {}; use --tokenizer bytes or PATH",
           data.reading.format == TokenFormat::text ? "text" : "jsonl");
  if (!data.reading.prompt_field.empty()) {
    if (data.tokenizer == Tokenizer::none && options.is_given("tokenizer"))
      reject("--tokenizer none cannot read the text of --prompt-field {}; use --tokenizer bytes or PATH",
             data.reading.prompt_field);
    const auto prompts = models::field_names(data.reading.prompt_field);
    if (std::ranges::find(prompts, data.reading.json_field) != prompts.end())
      reject("--prompt-field {} and --json-field {} share a field; use different fields", data.reading.prompt_field,
             data.reading.json_field);
    if (data.documents == Documents::join && options.is_given("documents"))
      reject("--documents join with --prompt-field {} lets completions attend to other prompts; remove --documents",
             data.reading.prompt_field);
    if (data.documents == Documents::pad)
      reject("--documents pad has no effect with --prompt-field {}, which packs samples; remove --documents",
             data.reading.prompt_field);
    data.documents = Documents::mask;
  }
  if (!data.reading.label_field.empty()) resolve_labelled(options);
  if (data.document_end && data.documents == Documents::join)
    reject("--document-end {} has no effect with --documents join; use --documents mask", *data.document_end);
  if (data.document_end && !data.data.empty() && !tokens)
    reject(
        "--document-end {} is for token files, but --data is text with known document ends; remove --document-end",
        *data.document_end);
  const bool own = !model.is_preset() && !options.is_given("vocab-size");
  int& vocab_size = *models::find_size(model.sizes, models::Size::vocab_size);
  if (own && data.tokenizer != Tokenizer::bytes) vocab_size = 50257;
  if (own && data.tokenizer == Tokenizer::bytes && models::fills_masks(model.sizes) &&
      data.reading.label_field.empty())
    vocab_size = std::max(byte_tokens + 1, data.mask_token.value_or(byte_tokens) + 1);
  std::error_code ignored;
  if (own && !data.gpt2.empty() && std::filesystem::exists(data.gpt2, ignored))
    vocab_size = models::read_tokenizer(data.gpt2).size();
}

}  // namespace

bool encodes_text(const DataOptions& data) {
  const auto holds_tokens = [&](const std::filesystem::path& path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) return models::holds_tokens(path, data.reading.format);
    const std::filesystem::recursive_directory_iterator files(path,
                                                              ignored);  // a folder never mixes text and tokens
    return std::any_of(begin(files), end(files), [&](const std::filesystem::directory_entry& file) {
      return models::holds_tokens(file.path(), data.reading.format);
    });
  };
  const auto paths = models::parse_weighted_paths(data.data);
  return !data.gpt2.empty() &&
         std::ranges::any_of(paths, [&](const models::WeightedPath& one) { return !holds_tokens(one.path); });
}

void resolve_data(TrainOptions& options) {
  if (models::reads_images(options.model.sizes)) {
    resolve_images(options);
  } else {
    if (options.data.augment)
      reject("--augment is for images, but --model {} reads text; remove --augment", options.model.name);
    resolve_text(options);
  }
  DataOptions& data = options.data;
  std::int64_t& eval_every = options.trainer.eval_every;
  const std::int64_t at_the_end = options.trainer.steps;
  if (data.eval_only) return check_eval_only(options);
  const bool asks = !data.hellaswag.empty();
  if (asks && !options.is_given("eval-every")) eval_every = at_the_end;
  if (asks && eval_every == 0)
    reject("--hellaswag {} has no effect with --eval-every 0; remove --eval-every", data.hellaswag);
  const bool only_answers = asks && (options.is_given("validation-split") || !options.is_given("eval-every"));
  if (eval_every > 0 && data.validation_split == 0 && !only_answers) {
    if (options.is_given("validation-split"))
      reject("--eval-every {} has no data with --validation-split 0; use a fraction, such as 0.1", eval_every);
    data.validation_split = 0.1;
  }
  if (data.validation_split > 0 && !options.is_given("eval-every")) eval_every = at_the_end;
  if (data.eval_samples > 0 && data.validation_split == 0)
    reject("--eval-samples {} needs validation data; add --validation-split 0.1", data.eval_samples);
}

void resolve_labels(TrainOptions& options) {
  DataOptions& data = options.data;
  ModelOptions& model = options.model;
  auto* const bert = std::get_if<models::BertOptions>(&model.sizes);
  const std::string& field = data.reading.label_field;
  if (field.empty()) {
    if (models::tells_classes(model.sizes) && !data.data.empty())
      reject("--label-field is missing: --model {} classifies texts into {} classes; add --label-field NAME",
             model.name, bert->classes);
    return;
  }
  if (bert == nullptr)
    reject("--label-field {} needs BERT or RoBERTa, but --model is {}; use --model bert or roberta", field,
           model.name);
  data.labels = stored_labels(options);
  if (!data.labels.empty()) return;
  const std::string& adapter = options.run.init_adapter;
  if (data.eval_only && (adapter.empty() || models::read_adapter_config(adapter).whole.empty()))
    reject(
        "--eval-only with --label-field {} needs a classification head, but --init-from {}{} has none; train a "
        "classifier first",
        field, options.run.init_from, adapter.empty() ? "" : " with --init-adapter " + adapter);
  constexpr std::size_t max_classes = 100'000;
  if (!data.data.empty())
    data.labels =
        models::labels_in(models::parse_weighted_paths(data.data).front().path, data.reading, max_classes);
  const auto found = static_cast<int>(data.labels.size());
  if (options.is_given("classes") && bert->classes < found)
    reject("--classes {} is too small: field '{}' of {} has {}, such as '{}'; use at least {}", bert->classes,
           field, data.data, found, data.labels.back(), found);
  if (!options.is_given("classes")) bert->classes = std::max(found, 2);
  for (int label = found; label < bert->classes; ++label) data.labels.push_back(models::unnamed_label(label));
}

void check_purpose(const TrainOptions& options) {
  const ModelOptions& model = options.model;
  const bool classifies = models::tells_classes(model.sizes);
  if (!classifies && !models::fills_masks(model.sizes)) {
    if (options.data.documents == Documents::pad)
      reject("--documents pad is for BERT and RoBERTa, but --model is {}; use --documents mask", model.name);
    return;
  }
  const std::int64_t samples = options.trainer.sample.every;
  for (const auto& [flag, value] : {std::pair{"--sample-every", samples > 0 ? fmt::format("{}", samples) : ""},
                                    {"--hellaswag", options.data.hellaswag},
                                    {"--prompt-field", classifies ? "" : options.data.reading.prompt_field}}) {
    if (!value.empty())
      reject("{0} {1} needs a causal language model, but --model {2} {3}; remove {0}", flag, value, model.name,
             classifies ? "classifies" : "fills masks");
  }
  if (classifies) return;
  const int vocab_size = model.size(models::Size::vocab_size);
  if (options.data.mask_token && *options.data.mask_token >= vocab_size)
    reject("--mask-token {} is not below the vocabulary size, {}; use a smaller id or raise --vocab-size",
           *options.data.mask_token, vocab_size);
}

}  // namespace ranvier::apps
