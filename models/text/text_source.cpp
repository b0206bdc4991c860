#include "models/text/text_source.hpp"

#include "models/ops/cross_entropy.hpp"
#include "models/text/document_source.hpp"
#include "models/text/instruction_source.hpp"
#include "models/text/labelled_source.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace ranvier::models {

TextSource::TextSource(std::shared_ptr<const TokenSequence> tokens, const TextSourceOptions& options)
    : TokenSamples(options.sequence_length), tokens_(std::move(tokens)), options_(options) {
  const auto [begin, end] = options_.range;
  expect(begin >= 0 && begin <= end && end <= tokens_->tokens(), "tokens are out of range: {} to {} of {}", begin,
         end, tokens_->tokens());
  samples_ = (end - begin - 1) / positions();
  if (samples_ < 1)
    fail(ErrorCode::data,
         "{}: {} tokens are too few for `sequence_length` {}, which needs {}; decrease `sequence_length` or use "
         "more data",
         tokens_->path().string(), end - begin, positions(), std::int64_t{positions()} + 1);
  if (options_.shuffle_seed) order_.emplace(samples_, *options_.shuffle_seed);
}

template <typename F>
void TextSource::for_each_part(std::int64_t n, std::int64_t from, std::int64_t count, F&& f) const {
  const std::int64_t range = options_.range.end - options_.range.begin;
  const std::int64_t window = order_ ? (*order_)(n) : n;
  std::int64_t at = (window * positions() + from) % range;
  while (count > 0) {
    const std::int64_t part = std::min(count, range - at);
    f(options_.range.begin + at, part);
    count -= part;
    at = 0;
  }
}

void TextSource::read(std::int64_t n, std::int64_t shift, std::byte* to) const {
  auto* out = reinterpret_cast<std::int32_t*>(to);
  for_each_part(n, shift, positions(), [&](std::int64_t at, std::int64_t part) {
    tokens_->read(at, part, options_.vocab_size, out);
    out += part;
  });
}

template <typename F>
void TextSource::for_each_begin(std::int64_t n, std::int64_t from, F&& f) const {
  std::int64_t before = 0;
  for_each_part(n, from, positions(), [&](std::int64_t at, std::int64_t part) {
    const auto begins = tokens_->document_begins(at, part);
    if (at == options_.range.begin && (begins.empty() || begins.front() > at)) f(before);
    for (const std::int64_t begin : begins) f(before + begin - at);
    before += part;
  });
}

std::int64_t TextSource::losses_of(std::int64_t n) const {
  std::int64_t losses = positions();
  if (masks()) for_each_begin(n, 1, [&](std::int64_t) { --losses; });
  return losses;
}

void TextSource::read_target(std::int64_t n, std::byte* to) const {
  read(n, 1, to);
  auto* const targets = reinterpret_cast<std::int32_t*>(to);
  if (masks()) for_each_begin(n, 1, [&](std::int64_t i) { targets[i] = no_target; });
}

void TextSource::read_starts(std::int64_t n, std::int32_t* to) const {
  std::int32_t* at = to;
  std::int32_t start = 0;
  for_each_begin(n, 0, [&](std::int64_t i) {
    at = std::fill_n(at, to + i - at, start);
    start = static_cast<std::int32_t>(i);
  });
  std::fill(at, to + positions(), start);
}

void TextSource::prefetch(std::int64_t n) const {
  for_each_part(n, 0, std::int64_t{positions()} + 1,
                [this](std::int64_t at, std::int64_t part) { tokens_->will_read(at, part); });
}

namespace {

TextData open_mixture(const TextDataOptions& options) {
  std::vector<WeightedSource> training, validation;
  TextData mixed;
  double weights = 0;
  for (std::size_t i = 0; i < options.mixture.size(); ++i) {
    TextDataOptions one = options;
    one.mixture.clear();
    one.path = options.mixture[i].path;
    if (one.shuffle_seed) *one.shuffle_seed += i;  // files of the same length have orders of their own
    TextData data = open_text_data(one);
    mixed.tokens += data.tokens;
    weights += options.mixture[i].weight;
    mixed.origins.push_back(std::move(data.origins.front()));
    mixed.origins.back().share = options.mixture[i].weight;
    mixed.files.insert(mixed.files.end(), data.files.begin(), data.files.end());
    training.push_back({std::move(data.training), options.mixture[i].weight});
    if (data.validation) validation.push_back({std::move(data.validation), options.mixture[i].weight});
  }
  for (TextOrigin& origin : mixed.origins) origin.share /= weights;
  mixed.training = std::make_unique<MixedSource>(std::move(training), options.shuffle_seed);
  if (!validation.empty()) mixed.validation = std::make_unique<MixedSource>(std::move(validation), std::nullopt);
  return mixed;
}

/// Without padding; `predicts_next`: with the target of the last position.
std::vector<std::int32_t> first_sample(const SampleSource& source, bool predicts_next) {
  std::vector<std::int32_t> tokens(source.input_bytes() / sizeof(std::int32_t));
  source.read_input(0, reinterpret_cast<std::byte*>(tokens.data()));
  tokens.resize(tokens.size() - static_cast<std::size_t>(source.padding(0)));
  if (!predicts_next || tokens.empty()) return tokens;
  std::vector<std::int32_t> targets(source.target_bytes() / sizeof(std::int32_t));
  source.read_target(0, reinterpret_cast<std::byte*>(targets.data()));
  if (const std::int32_t last = targets[tokens.size() - 1]; last != no_target) tokens.push_back(last);
  return tokens;
}

/// Splits the samples of `shared` by options.validation_split: the last ones are for validation.
template <typename Source, typename Shared>
void split_samples(TextData& data, const TextDataOptions& options, const std::shared_ptr<const Shared>& shared) {
  const std::int64_t all = shared->samples();
  const std::int64_t kept = validation_samples(options.validation_split, all, options.path.string(), "samples");
  if (kept > 0 || options.validates_all)
    data.validation = std::make_unique<Source>(shared, options.validates_all ? 0 : all - kept, all, std::nullopt);
  data.training = std::make_unique<Source>(shared, 0, all - kept, options.shuffle_seed);
}

/// A tokenizer may have more tokens than uint16 has numbers.
void check_width(const TokenSequence& tokens, const std::optional<Tokenizer>& tokenizer, int vocab_size,
                 std::vector<std::string>& remarks) {
  constexpr std::int32_t of_uint16 = 1 << 16;
  const TokenFile& file = tokens.files().front();
  if (file.format() != TokenFormat::uint16) return;
  if (tokenizer && tokenizer->size() > of_uint16)
    fail(ErrorCode::data,
         "{}: `tokenizer` has more than the 65536 tokens of uint16: {}; write a token file with ranvier-tokenize "
         "`output_format` megatron",
         file.path().string(), tokenizer->size());
  if (vocab_size > of_uint16)
    remarks.push_back(
        fmt::format("warning: {}: uint16 tokens are below {}, but the model has {}; check that the tokens are from "
                    "the model's tokenizer",
                    file.path().string(), of_uint16, vocab_size));
}

/// Throws ErrorCode::usage if the model lacks one of the tokens.
TokensAround around_of(const Tokenizer* tokenizer, std::int64_t vocab_size) {
  const SpecialTokens special = tokenizer == nullptr ? SpecialTokens() : tokenizer->specials();
  const TokensAround around{.begin = special.classifier ? special.classifier : special.begin_of_text,
                            .end = special.separator ? special.separator : special.end_of_text,
                            .padding = special.padding.value_or(0)};
  for (const std::int32_t token : {around.begin.value_or(0), around.end.value_or(0), around.padding})
    if (token >= vocab_size)
      fail(ErrorCode::usage,
           "the tokenizer's special token {} is outside the model's vocabulary of {} tokens; use the model's "
           "tokenizer",
           token, vocab_size);
  return around;
}

/// Data of a set in memory; `predicts_next` as for first_sample().
template <typename Source, typename Set>
TextData open_set(const TextDataOptions& options, const std::shared_ptr<const Set>& set, std::int64_t documents,
                  bool predicts_next) {
  TextData data;
  data.tokens = set->tokens();
  split_samples<Source>(data, options, set);
  data.origins.push_back({.path = options.path.string(),
                          .files = std::ssize(set->files()),
                          .documents = documents,
                          .tokens = data.tokens,
                          .samples = data.training->samples(),
                          .first_sample = first_sample(Source(set, 0, 1, std::nullopt), predicts_next),
                          .left_out = set->left_out(),
                          .remarks = set->remarks()});
  data.files = set->files();
  return data;
}

TextData open_instructions(const TextDataOptions& options, const TextReading& reading, const TextTokens& text) {
  const auto packed = std::make_shared<const PackedInstructions>(options.path, reading, text,
                                                                 options.sequence_length, options.vocab_size);
  return open_set<InstructionSource>(options, packed, packed->documents(), true);
}

TextData open_labelled(const TextDataOptions& options, const TextReading& reading, const TextTokens& text) {
  const LabelledTextOptions of_samples{.sequence_length = options.sequence_length,
                                       .vocab_size = options.vocab_size,
                                       .around = around_of(text.tokenizer, options.vocab_size),
                                       .labels = options.labels};
  const auto texts = std::make_shared<const LabelledTexts>(options.path, reading, text, of_samples);
  return open_set<LabelledSource>(options, texts, texts->samples(), false);
}

}  // namespace

TextData open_text_data(const TextDataOptions& options) {
  if (!options.mixture.empty()) return open_mixture(options);
  std::optional<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer.emplace(read_tokenizer(options.tokenizer));
  const TextTokens text{.tokenizer = tokenizer ? &*tokenizer : nullptr,
                        .threads = options.threads,
                        .specials = options.specials,
                        .framed = options.documents != Documents::pad};
  TextReading reading = options.reading;
  reading.needs_utf8 = tokenizer.has_value();
  if (!reading.prompt_field.empty()) return open_instructions(options, reading, text);
  if (!reading.label_field.empty()) return open_labelled(options, reading, text);
  const auto tokens = std::make_shared<TokenSequence>(options.path, reading, text);
  std::vector<std::string> remarks = tokens->remarks();
  if (!options.text_allowed && tokens->files().front().format() == TokenFormat::text)
    fail(ErrorCode::data,
         "{}: `tokenizer` none does not read text; use `tokenizer` bytes, `tokenizer` PATH or token files",
         options.path.string());
  check_width(*tokens, tokenizer, options.vocab_size, remarks);
  tokens->check_vocabulary(options.vocab_size);
  const auto document_end = options.document_end || !tokenizer ? options.document_end : tokenizer->end_of_text();
  if (options.documents != Documents::join) tokens->find_documents(document_end, options.vocab_size);

  TextData data;
  data.tokens = tokens->tokens();
  const auto source = [&](TokenRange range, std::optional<std::uint64_t> shuffle_seed) {
    return std::make_unique<TextSource>(tokens, TextSourceOptions{.range = range,
                                                                  .sequence_length = options.sequence_length,
                                                                  .vocab_size = options.vocab_size,
                                                                  .shuffle_seed = shuffle_seed,
                                                                  .documents = options.documents});
  };
  TokenRange training{0, data.tokens};
  std::vector<std::int32_t> first;
  if (options.documents == Documents::pad) {
    const auto cut = std::make_shared<const CutDocuments>(
        tokens, DocumentSampleOptions{.sequence_length = options.sequence_length,
                                      .vocab_size = options.vocab_size,
                                      .around = around_of(text.tokenizer, options.vocab_size),
                                      .document_end = document_end});
    split_samples<DocumentSource>(data, options, cut);
    first = first_sample(DocumentSource(cut, 0, 1, std::nullopt), false);
    remarks.push_back(cut->remark());
  } else if (options.validates_all) {
    data.validation = source(training, std::nullopt);
  } else if (options.validation_split > 0) {
    const auto kept =
        static_cast<std::int64_t>(std::floor(options.validation_split * static_cast<double>(data.tokens)));
    const std::int64_t cut = data.tokens - kept;
    const std::int64_t needed = std::int64_t{options.sequence_length} + 1;
    if (std::min(kept, cut) < needed)
      fail(ErrorCode::data,
           "{}: `validation_split` {} splits {} tokens into {} for training and {} for validation, but "
           "`sequence_length` {} needs {} of each; change the split or decrease `sequence_length`",
           options.path.string(), options.validation_split, data.tokens, cut, kept, options.sequence_length,
           needed);
    data.validation = source({cut, data.tokens}, std::nullopt);
    training.end = cut;
  }
  if (!data.training) {
    data.training = source(training, options.shuffle_seed);
    first = first_sample(*source(training, std::nullopt), true);
  }
  data.origins.push_back({.path = options.path.string(),
                          .files = std::ssize(tokens->files()),
                          .documents = tokens->documents(),
                          .tokens = data.tokens,
                          .samples = data.training->samples(),
                          .first_sample = std::move(first),
                          .left_out = tokens->left_out(),
                          .remarks = std::move(remarks)});
  for (const TokenFile& file : tokens->files())
    for (auto& path : file.paths()) data.files.push_back(std::move(path));
  return data;
}

}  // namespace ranvier::models
