#include "models/text/document_source.hpp"

#include "models/ops/cross_entropy.hpp"
#include "runtime/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace ranvier::models {

std::int32_t TokensAround::capacity(int sequence_length) const {
  if (sequence_length <= count())
    fail(ErrorCode::usage,
         "`sequence_length` {} is too small: {} tokens start and end each sample; increase `sequence_length`",
         sequence_length, count());
  return sequence_length - count();
}

CutDocuments::CutDocuments(std::shared_ptr<const TokenSequence> tokens, const DocumentSampleOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  const std::int32_t room = options_.around.capacity(options_.sequence_length);
  const std::span<const std::int64_t> begins = tokens_->document_begins(0, tokens_->tokens());
  std::int64_t filled = 0, cut = 0, empty = 0;
  for (std::size_t d = 0; d < begins.size(); ++d) {
    std::int64_t first = begins[d], end = d + 1 < begins.size() ? begins[d + 1] : tokens_->tokens();
    if (options_.document_end && first < end) {
      std::int32_t last = 0;
      tokens_->read(end - 1, 1, options_.vocab_size, &last);
      if (last == *options_.document_end) --end;
    }
    if (options_.around.begin && first < end) {
      std::int32_t begin = 0;
      tokens_->read(first, 1, options_.vocab_size, &begin);
      if (begin == *options_.around.begin) ++first;
    }
    empty += first == end ? 1 : 0;
    cut += end - first > room ? 1 : 0;
    for (; first < end; first += room) {
      pieces_.push_back({first, static_cast<std::int32_t>(std::min<std::int64_t>(room, end - first))});
      filled += pieces_.back().tokens + options_.around.count();
    }
  }
  if (pieces_.empty())
    fail(ErrorCode::data, "{}: all documents are empty; use files with text", tokens_->path().string());
  const double positions = static_cast<double>(samples()) * options_.sequence_length;
  remark_ = fmt::format("{}: {:.1f}% of all positions are padding", tokens_->path().string(),
                        100 * (1 - static_cast<double>(filled) / positions));
  if (cut > 0)
    remark_ += fmt::format("; split at `sequence_length` {}: {} of {} documents", options_.sequence_length, cut,
                           begins.size());
  if (empty > 0) remark_ += fmt::format("; skipped empty documents: {} of {}", empty, begins.size());
}

void CutDocuments::read(std::int64_t sample, std::int32_t* to) const {
  const Excerpt& piece = pieces_[static_cast<std::size_t>(sample)];
  std::int32_t* const end = to + options_.sequence_length;
  if (options_.around.begin) *to++ = *options_.around.begin;
  tokens_->read(piece.first, piece.tokens, options_.vocab_size, to);
  to += piece.tokens;
  if (options_.around.end) *to++ = *options_.around.end;
  std::fill(to, end, options_.around.padding);
}

void CutDocuments::will_read(std::int64_t sample) const {
  const Excerpt& piece = pieces_[static_cast<std::size_t>(sample)];
  tokens_->will_read(piece.first, piece.tokens);
}

void DocumentSource::read_target(std::int64_t n, std::byte* to) const {
  read_input(n, to);
  auto* const targets = reinterpret_cast<std::int32_t*>(to);
  std::fill(targets + set().filled(index(n)), targets + positions(), no_target);
}

}  // namespace ranvier::models
