#include "models/tokenizers/tokenizer_pipeline.hpp"

#include "models/tokenizers/unicode.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

/// Calls token(id) for each spelled token, and part(text, place) for the text between them.
template <typename Token, typename Part>
void for_each_spelled(const AddedTokens& tokens, SpecialTokenPolicy specials, std::string_view text,
                      TextPosition place, Token&& token, Part&& part) {
  std::size_t done = 0;
  if (tokens.finds(specials)) {
    while (const auto found = tokens.find(text, done, specials)) {
      if (found->begin > done) part(text.substr(done, found->begin - done), place);
      token(found->token);
      done = found->end;
      place = {.begins = true, .first = false};
    }
  }
  if (done < text.size()) part(text.substr(done), place);
}

}  // namespace

TextCuts TokenizerPipeline::cuts(SpecialTokenPolicy special_tokens) const {
  if (splits_like_gpt2) return {};
  // A normalizer may prepend text at the start of a text, and so after a spelled token, but not after a cut.
  std::string outside = "x", inside = "x";
  for (const auto& one : normalizers) {
    one.apply(outside, {.begins = true, .first = false});
    one.apply(inside, {.begins = false, .first = false});
  }
  const bool prepends = outside != inside;
  const bool between_blanks = !prepends && std::any_of(pre_tokenizers.begin(), pre_tokenizers.end(),
                                                       [](const auto& one) { return one.cuts_between_blanks; });
  const bool finds_specials = special_tokens == SpecialTokenPolicy::tokenizer;
  const bool can_cut = cuts_before_spaces && !(finds_specials && spelled_normally.has_special()) &&
                       !(prepends && spelled.finds(SpecialTokenPolicy::text)) &&
                       spelled.is_local(SpecialTokenPolicy::text, false) &&
                       spelled_normally.is_local(SpecialTokenPolicy::text, true) &&
                       std::all_of(normalizers.begin(), normalizers.end(), [&](const Normalizer& one) {
                         return one.local == Normalizer::Local::yes ||
                                (one.local == Normalizer::Local::between_blanks && between_blanks);
                       });
  if (!can_cut) return {SplitPoints::nowhere};
  return {SplitPoints::spaces, finds_specials && spelled.has_special() ? &spelled : nullptr};
}

PipelineEncoder::PipelineEncoder(const TokenizerPipeline& pipeline, SpecialTokenPolicy specials)
    : pipeline_(pipeline), specials_(specials), model_(pipeline.model()) {
  if (pipeline.splits_like_gpt2) splitter_.emplace();
}

void PipelineEncoder::encode(std::string_view text, bool begins, std::vector<std::int32_t>& to) {
  for_each_spelled(
      pipeline_.spelled, specials_, text, {begins, begins}, [&](std::int32_t token) { to.push_back(token); },
      [&](std::string_view part, TextPosition place) { encode_part(part, place, to); });
}

void PipelineEncoder::encode_part(std::string_view text, TextPosition place, std::vector<std::int32_t>& to) {
  if (splitter_) {
    splitter_->start(text);
    for (auto word = splitter_->next(); !word.empty(); word = splitter_->next()) model_->encode(word, to);
    return;
  }
  for (std::size_t done = 0; done < text.size();) {
    const std::size_t stray = first_stray_byte(text, done);
    if (stray > done) encode_characters(text.substr(done, stray - done), place, to);
    place = {false, false};
    if (stray < text.size()) model_->encode_stray(static_cast<std::uint8_t>(text[stray]), to);
    done = stray + 1;
  }
}

void PipelineEncoder::encode_characters(std::string_view text, TextPosition place, std::vector<std::int32_t>& to) {
  if (pipeline_.normalizers.empty() && !pipeline_.spelled_normally.finds(specials_))
    return encode_words(text, place, to);
  normal_ = text;
  for (const auto& normalizer : pipeline_.normalizers) normalizer.apply(normal_, place);
  for_each_spelled(
      pipeline_.spelled_normally, specials_, normal_, place, [&](std::int32_t token) { to.push_back(token); },
      [&](std::string_view part, TextPosition there) { encode_words(part, there, to); });
}

void PipelineEncoder::encode_words(std::string_view text, TextPosition place, std::vector<std::int32_t>& to) {
  words_.text.assign(text);
  words_.ranges.assign(1, {0, text.size()});
  for (const auto& step : pipeline_.pre_tokenizers) step.cut(words_, place);
  for (const CutText::Range word : words_.ranges)
    model_->encode(std::string_view(words_.text).substr(word.begin, word.end - word.begin), to);
}

}  // namespace ranvier::models
