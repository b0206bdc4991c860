#include "models/text/token_sequence.hpp"

#include "models/text/bpe_encoder.hpp"
#include "models/text/data_files.hpp"
#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_tokens_checked = std::int64_t{1} << 29;  // 1 GiB of uint16
constexpr std::int64_t most_encoded_bytes = std::int64_t{1} << 28;   // by every rank, and kept
constexpr std::int64_t check_block = std::int64_t{1} << 20;

}  // namespace

TokenSequence::TokenSequence(const fs::path& path, TokenFormat format, const TextTokens& text)
    : path_(path), starts_{0} {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const bool tokens = has_tokens(format);
    for (const auto& file : tokens ? token_files_in(path) : text_files_in(path))
      files_.emplace_back(file, tokens ? format : TokenFormat::text);
  } else {
    files_.emplace_back(path, format);
  }
  if (files_.front().format() == TokenFormat::text)
    for (const auto& file : files_) text_bytes_ += file.tokens();
  if (text.vocabulary != nullptr && text_bytes_ > 0) encode(text);
  for (const auto& file : files_) starts_.push_back(starts_.back() + file.tokens());
}

void TokenSequence::encode(const TextTokens& text) {
  if (text_bytes_ > most_encoded_bytes)
    fail(ErrorCode::data,
         "{}: {} bytes of text: every rank would encode and keep them, which ends at {}: make a token file with "
         "ranvier-tokenize and give that",
         path_.string(), text_bytes_, most_encoded_bytes);
  TextEncoder encoder(*text.vocabulary, text.threads);
  for (auto& file : files_) {
    const runtime::MemoryMap map(file.path());
    std::vector<std::int32_t> tokens;
    encoder.encode({reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()}, tokens);
    if (&file != &files_.back()) tokens.push_back(text.vocabulary->end_of_text());
    tokens.shrink_to_fit();
    file = TokenFile(file.path(), std::move(tokens));
  }
}

template <typename F>
void TokenSequence::for_each_part(std::int64_t first, std::int64_t count, F&& f) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), first);
  for (auto file = static_cast<std::size_t>(after - starts_.begin()) - 1; count > 0; ++file) {
    const std::int64_t part = std::min(count, starts_[file + 1] - first);
    f(files_[file], first - starts_[file], part);
    first += part;
    count -= part;
  }
}

void TokenSequence::check_vocabulary(int vocab_size) const {
  const std::int64_t blocks = (tokens() + check_block - 1) / check_block;
  const std::int64_t checked = std::min(blocks, most_tokens_checked / check_block);
  for (std::int64_t i = 0; i < checked; ++i) {
    const std::int64_t first = i * blocks / checked * check_block;
    for_each_part(first, std::min(check_block, tokens() - first),
                  [&](const TokenFile& file, std::int64_t at, std::int64_t part) {
                    file.check_vocabulary(at, part, vocab_size);
                  });
  }
}

void TokenSequence::will_read(std::int64_t first, std::int64_t count) const {
  for_each_part(first, count,
                [](const TokenFile& file, std::int64_t at, std::int64_t part) { file.will_read(at, part); });
}

void TokenSequence::read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const {
  expect(first >= 0 && count >= 0 && count <= tokens() - first, "{}: tokens {} to {} of {}", path_.string(), first,
         first + count, tokens());
  for_each_part(first, count, [&](const TokenFile& file, std::int64_t at, std::int64_t part) {
    file.check_vocabulary(at, part, vocab_size);
    file.read(at, part, to);
    to += part;
  });
}

}  // namespace ranvier::models
