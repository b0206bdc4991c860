#include "models/text/token_sequence.hpp"

#include "models/text/document_reader.hpp"
#include "models/tokenizers/text_encoder.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_tokens_checked = std::int64_t{1} << 29;  // 1 GiB of uint16
constexpr std::size_t max_surveyed_bytes = std::size_t{1} << 28;    // bytes per file
constexpr std::int64_t check_block = std::int64_t{1} << 20;

}  // namespace

TokenSequence::TokenSequence(const fs::path& path, const TextReading& reading, const TextTokens& text)
    : path_(path), starts_{0}, reading_(reading) {
  DataFiles found = data_files_at(path, reading);
  left_out_ = std::move(found.left_out);
  for (const DataFile& file : found.files)
    if (!file.remark.empty()) remarks_.push_back(file.remark);
  if (has_tokens(found.files.front().format)) {
    for (const DataFile& file : found.files) reading.tell(file.path), files_.emplace_back(file);
  } else {
    read_text(found.files, reading, text);
  }
  for (const TokenFile& file : files_) {
    documents_ += file.documents();
    starts_.push_back(starts_.back() + file.tokens());
  }
}

void TokenSequence::read_text(const std::vector<DataFile>& files, const TextReading& reading,
                              const TextTokens& text) {
  std::optional<TextEncoder> encoder;
  if (text.tokenizer != nullptr) encoder.emplace(*text.tokenizer, text.threads, text.specials);
  const TextCuts cuts = encoder ? text.tokenizer->cuts(text.specials) : TextCuts();
  const DocumentFrame frame = text.frame();
  const std::int32_t end_of_text = encoder ? text.tokenizer->required_end_of_text() : 0;
  std::size_t held_bytes = 0;  // bytes of text read or encoded into memory
  for (const DataFile& file : files) {
    const bool lines = file.format == TokenFormat::jsonl;
    if (!encoder && !lines && file.compression == Compression::none) {
      TextSurvey survey;
      survey.add(files_.emplace_back(file).text().substr(0, max_surveyed_bytes));
      if (survey.strange() > 0) remarks_.push_back(remark_on(survey, file.path));
    } else {
      DocumentReader reader(file, reading, 0, cuts);
      std::vector<char> bytes;
      std::vector<std::int32_t> tokens;
      std::vector<std::int64_t> begins;  // starts of documents
      std::vector<TextEncoder::Passage> texts;
      for (auto pieces = reader.next(); !pieces.empty(); pieces = reader.next()) {
        reading.tell(file.path);
        texts.clear();
        for (const auto& piece : pieces) {
          held_bytes += piece.text.size();
          check_held(held_bytes, path_, "text for a tokenizer, compressed or in JSON lines exceeds",
                     "use ranvier-tokenize to write a token file");
          texts.push_back({piece.text, piece.begins});
          if (encoder) continue;
          documents_ += piece.begins ? 1 : 0;
          if (piece.begins) begins.push_back(std::ssize(bytes));
          bytes.insert(bytes.end(), piece.text.begin(), piece.text.end());
          if (lines) bytes.push_back('\n');
        }
        if (!encoder) continue;
        encoder->encode(texts);
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          const auto of_piece = encoder->tokens(i);
          if (pieces[i].begins) {
            if (!begins.empty()) frame.end(tokens);
            if (documents_++ > 0 && frame.needs_between(end_of_text)) tokens.push_back(end_of_text);
            begins.push_back(std::ssize(tokens));
            frame.begin(of_piece, tokens);
          }
          tokens.insert(tokens.end(), of_piece.begin(), of_piece.end());
        }
      }
      for (std::string& remark : reader.remarks()) remarks_.push_back(std::move(remark));
      if (!begins.empty()) frame.end(tokens);
      tokens.shrink_to_fit();
      bytes.shrink_to_fit();
      if (!tokens.empty())
        files_.emplace_back(file.path, std::move(tokens), std::move(begins));
      else if (!bytes.empty())
        files_.emplace_back(file.path, std::move(bytes), std::move(begins));
    }
  }
  if (files_.empty()) fail(ErrorCode::data, "{}: no text found; use files that are not empty", path_.string());
}

void TokenSequence::find_documents(std::optional<std::int32_t> end, int vocab_size) {
  bool known = false;
  std::size_t unknown_files = 0;
  begins_.clear();
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const TokenFile& file = files_[f];
    if (!file.knows_documents() && !end)
      fail(ErrorCode::data,
           "{}: `documents` mask needs a token that ends documents; add `document_end` TOKEN (GPT-2: 50256), add a "
           "`tokenizer` with an end-of-text token, or use `documents` join",
           file.path().string());
    reading_.tell(file.path());
    const std::vector<std::int64_t> begins = file.document_begins(end.value_or(0), vocab_size);
    known = known || file.knows_documents() || begins.size() > 1;
    unknown_files += file.knows_documents() ? 0 : 1;
    for (const std::int64_t begin : begins) begins_.push_back(starts_[f] + begin);
  }
  if (!known)
    fail(ErrorCode::data,
         "{}: end-of-document token {} separates none of {} tokens in {} file{}; use another "
         "`document_end`, or `documents` join",
         path_.string(), *end, tokens(), unknown_files, unknown_files == 1 ? "" : "s");
  documents_ = std::ssize(begins_);
}

std::span<const std::int64_t> TokenSequence::document_begins(std::int64_t first, std::int64_t count) const {
  const auto begin = std::lower_bound(begins_.begin(), begins_.end(), first);
  return {begin, std::lower_bound(begin, begins_.end(), first + count)};
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
  const std::int64_t blocks = runtime::ceil_divide(tokens(), check_block);
  const std::int64_t checked = std::min(blocks, max_tokens_checked / check_block);
  for (std::int64_t i = 0; i < checked; ++i) {
    const std::int64_t first = i * blocks / checked * check_block;
    for_each_part(first, std::min(check_block, tokens() - first),
                  [&](const TokenFile& file, std::int64_t at, std::int64_t part) {
                    reading_.tell(file.path());
                    file.check_vocabulary(at, part, vocab_size);
                  });
  }
}

void TokenSequence::will_read(std::int64_t first, std::int64_t count) const {
  for_each_part(first, count,
                [](const TokenFile& file, std::int64_t at, std::int64_t part) { file.will_read(at, part); });
}

void TokenSequence::read(std::int64_t first, std::int64_t count, int vocab_size, std::int32_t* to) const {
  expect(first >= 0 && count >= 0 && count <= tokens() - first, "{}: tokens are out of range: {} to {} of {}",
         path_.string(), first, first + count, tokens());
  for_each_part(first, count, [&](const TokenFile& file, std::int64_t at, std::int64_t part) {
    file.read(at, part, vocab_size, to);
    to += part;
  });
}

}  // namespace ranvier::models
