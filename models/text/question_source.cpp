#include "models/text/question_source.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::models {

namespace {

constexpr int positions_step = 32;

}  // namespace

QuestionSource::QuestionSource(std::shared_ptr<const QuestionFile> file, int sequence_length)
    : TokenSamples(sequence_length), file_(std::move(file)), length_(sequence_length) {}

std::size_t QuestionSource::left_out(const QuestionFile::Answer& answer) const {
  const std::size_t tokens = answer.context.size() + answer.completion.size(),
                    most = static_cast<std::size_t>(length_) + 1;
  return tokens > most ? tokens - most : 0;
}

int QuestionSource::positions_of(std::int64_t first, int count) const {
  std::size_t longest = 1;
  for (std::int64_t n = first; n < first + count; ++n) longest = std::max(longest, scored(n).end);
  const auto rounded = runtime::round_up(static_cast<int>(longest), positions_step);
  return std::min(rounded, length_);
}

QuestionSource::Scored QuestionSource::scored(std::int64_t sample) const {
  const QuestionFile::Answer& of = answer(sample);
  const std::size_t out = left_out(of), end = of.context.size() + of.completion.size() - out - 1;
  return {of.context.size() > out ? of.context.size() - out - 1 : 0, end};
}

void QuestionSource::read(std::int64_t n, std::size_t shift, std::byte* to) const {
  const QuestionFile::Answer& of = answer(n);
  const std::size_t out = left_out(of) + shift, needed = scored(n).end;
  expect(needed <= static_cast<std::size_t>(positions()),
         "a completion needs more positions than a sample has: {}, at most {}", needed, positions());
  auto* const tokens = reinterpret_cast<std::int32_t*>(to);
  for (std::size_t p = 0; p < static_cast<std::size_t>(positions()); ++p) {
    const std::size_t at = p + out;
    tokens[p] = p >= needed ? 0 : at < of.context.size() ? of.context[at] : of.completion[at - of.context.size()];
  }
}

}  // namespace ranvier::models
