#include "models/text/text_source.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>

namespace ranvier::models {

TextSource::TextSource(std::shared_ptr<const TokenSequence> tokens, const TextSourceOptions& options)
    : tokens_(std::move(tokens)), options_(options), length_(static_cast<std::size_t>(options.sequence_length)) {
  const auto [begin, end] = options_.range;
  expect(begin >= 0 && begin <= end && end <= tokens_->tokens(), "tokens {} to {} of {}", begin, end,
         tokens_->tokens());
  samples_ = (end - begin - 1) / options_.sequence_length;
  if (samples_ < 1)
    fail(ErrorCode::data,
         "{}: {} tokens are too few for --sequence-length {}, which needs {}: shorten it or give "
         "more data",
         tokens_->path().string(), end - begin, options_.sequence_length,
         std::int64_t{options_.sequence_length} + 1);
  if (options_.shuffle_seed) order_.emplace(samples_, *options_.shuffle_seed);
}

void TextSource::read(std::int64_t first, int count, std::int64_t shift, std::byte* to) const {
  const std::int64_t range = options_.range.end - options_.range.begin;
  const std::int64_t length = options_.sequence_length;
  auto* out = reinterpret_cast<std::int32_t*>(to);
  for (std::int64_t n = first; n < first + count; ++n) {
    const std::int64_t window = order_ ? (*order_)(n) : n;
    for (std::int64_t done = 0; done < length;) {
      const std::int64_t at = (window * length + shift + done) % range;
      const std::int64_t part = std::min(length - done, range - at);
      tokens_->read(options_.range.begin + at, part, options_.vocab_size, out);
      out += part;
      done += part;
    }
  }
}

TextData open_text_data(const TextDataOptions& options) {
  const auto tokens = std::make_shared<const TokenSequence>(options.path, options.format);
  if (!options.text_allowed && tokens->files().front().format() == TokenFormat::text)
    fail(ErrorCode::data, "{}: text, which --tokenizer none does not read: give --tokenizer bytes, or token files",
         options.path.string());
  tokens->check_vocabulary(options.vocab_size);

  TextSourceOptions source{.range = {0, tokens->tokens()},
                           .sequence_length = options.sequence_length,
                           .vocab_size = options.vocab_size,
                           .shuffle_seed = options.shuffle_seed};
  TextData data;
  data.tokens = tokens->tokens();
  if (options.validation_split > 0) {
    const auto kept =
        static_cast<std::int64_t>(std::floor(options.validation_split * static_cast<double>(data.tokens)));
    const std::int64_t cut = data.tokens - kept;
    const std::int64_t needed = std::int64_t{options.sequence_length} + 1;
    if (std::min(kept, cut) < needed)
      fail(ErrorCode::data,
           "{}: --validation-split {} cuts {} tokens into {} for training and {} for validation, but "
           "--sequence-length {} needs {} of each: change the split or shorten the sequences",
           options.path.string(), options.validation_split, data.tokens, cut, kept, options.sequence_length,
           needed);
    source.range = {cut, data.tokens};
    source.shuffle_seed.reset();
    data.validation = std::make_unique<TextSource>(tokens, source);
    source.range = {0, cut};
    source.shuffle_seed = options.shuffle_seed;
  }
  data.training = std::make_unique<TextSource>(tokens, source);
  return data;
}

}  // namespace ranvier::models
