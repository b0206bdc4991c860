#include "models/text/instruction_source.hpp"

#include "models/ops/cross_entropy.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <numeric>

namespace ranvier::models {
namespace {

constexpr std::int32_t padding_token = 0;  // valid in every vocabulary

}  // namespace

PackedInstructions::PackedInstructions(const std::filesystem::path& path, const TextReading& reading,
                                       const TextTokens& text, int sequence_length, int vocab_size)
    : TokenizedLines(path), length_(sequence_length) {
  const DocumentFrame frame = text.frame();
  read_lines(reading, text, vocab_size,
             [&](const auto&, std::span<const std::int32_t> tokens, std::size_t prompt_tokens) {
               const std::int32_t end = text.tokenizer != nullptr ? text.tokenizer->required_end_of_text() : '\n';
               const std::size_t first = tokens_.size();
               frame.begin(tokens, tokens_);
               const std::size_t prompt = tokens_.size() - first + prompt_tokens;
               tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
               const bool spelled = text.tokenizer != nullptr && !tokens.empty() && tokens.back() == end;
               if (!spelled) tokens_.push_back(end);
               add(static_cast<std::int64_t>(prompt), static_cast<std::int64_t>(tokens_.size() - first));
             });
  if (documents_.empty())
    fail(ErrorCode::data, "{}: none of {} completions fits `sequence_length` {}; {}", path.string(), lost_,
         sequence_length, lost_ > 0 ? "increase `sequence_length`" : "use lines with a completion");
  if (cut_ > 0 || lost_ > 0)
    remarks_.push_back(fmt::format(
        "{}: {} of {} completions are truncated at `sequence_length` {}, and {} skipped (prompt too long)",
        path.string(), cut_, documents() + lost_, sequence_length, lost_));
  pack();
}

void PackedInstructions::add(std::int64_t prompt, std::int64_t tokens) {
  const std::int64_t kept = std::min<std::int64_t>(tokens, std::int64_t{length_} + 1);
  const std::int64_t first = std::ssize(tokens_) - tokens;
  const bool answers = prompt < kept;
  if (kept < tokens) ++(answers ? cut_ : lost_);
  tokens_.resize(static_cast<std::size_t>(answers ? first + kept : first));
  if (answers) documents_.push_back({first, static_cast<std::int32_t>(kept), static_cast<std::int32_t>(prompt)});
}

void PackedInstructions::pack() {
  firsts_.push_back(0);
  losses_.push_back(0);
  std::int32_t positions = 0;
  for (std::size_t d = 0; d < documents_.size(); ++d) {
    const Document& document = documents_[d];
    if (positions + document.tokens - 1 > length_) {
      firsts_.push_back(static_cast<std::int64_t>(d));
      losses_.push_back(0);
      positions = 0;
    }
    positions += document.tokens - 1;
    losses_.back() += document.tokens - std::max(document.prompt, 1);
  }
  firsts_.push_back(std::ssize(documents_));
}

std::span<const PackedInstructions::Document> PackedInstructions::documents_of(std::int64_t sample) const {
  const auto first = firsts_.begin() + sample;
  return std::span(documents_)
      .subspan(static_cast<std::size_t>(first[0]), static_cast<std::size_t>(first[1] - first[0]));
}

std::int32_t PackedInstructions::filled(std::int64_t sample) const {
  std::int32_t positions = 0;
  for (const Document& document : documents_of(sample)) positions += document.tokens - 1;
  return positions;
}

void PackedInstructions::read(std::int64_t sample, std::int32_t* to) const {
  std::int32_t* const padding = for_each_document(sample, to, [&](const Document& document, std::int32_t* at) {
    std::copy_n(tokens_of(document), document.tokens - 1, at);
  });
  std::fill(padding, to + length_, padding_token);
}

void InstructionSource::read_target(std::int64_t n, std::byte* to) const {
  auto* const targets = reinterpret_cast<std::int32_t*>(to);
  std::int32_t* const padding =
      set().for_each_document(index(n), targets, [&](const auto& document, std::int32_t* at) {
        const std::int32_t silent = std::max(document.prompt, 1) - 1;  // positions that foretell more of the prompt
        std::fill_n(at, silent, no_target);
        std::copy_n(set().tokens_of(document) + silent + 1, document.tokens - 1 - silent, at + silent);
      });
  std::fill(padding, targets + positions(), no_target);
}

void InstructionSource::read_starts(std::int64_t n, std::int32_t* to) const {
  std::int32_t* const padding = set().for_each_document(index(n), to, [to](const auto& document, std::int32_t* at) {
    std::fill_n(at, document.tokens - 1, static_cast<std::int32_t>(at - to));
  });
  std::iota(padding, to + positions(), static_cast<std::int32_t>(padding - to));
}

}  // namespace ranvier::models
