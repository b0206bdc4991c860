#include "models/tokenizers/added_tokens.hpp"

#include "models/tokenizers/unicode.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::models {
namespace {

/// Character before `at`, or 0 if there is none; the text may not be UTF-8.
char32_t character_before(std::string_view text, std::size_t at) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, at); ++bytes)
    if (character_bytes(text.substr(0, at), at - bytes) == bytes) return character_at(text, at - bytes);
  return 0;
}

char32_t character_behind(std::string_view text, std::size_t at) {
  return at < text.size() && character_bytes(text, at) > 0 ? character_at(text, at) : 0;
}

/// Bytes of repeated `mark` at the start.
std::size_t leading(std::string_view mark, std::string_view text) {
  std::size_t bytes = 0;
  while (text.substr(bytes).starts_with(mark)) bytes += mark.size();
  return bytes;
}

std::size_t utf8_bytes(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    some_ordinary_ = some_ordinary_ || !tokens_[i].special;
    some_special_ = some_special_ || tokens_[i].special;
    longest_ = std::max(longest_, tokens_[i].content.size());
    begins_[static_cast<std::uint8_t>(tokens_[i].content.front())] = true;
    std::uint32_t node = 0;
    for (const char c : tokens_[i].content) {
      const auto [next, is_new] = nodes_[node].next.emplace(c, static_cast<std::uint32_t>(nodes_.size()));
      node = next->second;
      if (is_new) nodes_.emplace_back();
    }
    if (nodes_[node].ends < 0) nodes_[node].ends = static_cast<std::int32_t>(i);
  }
  if (std::count(begins_.begin(), begins_.end(), true) == 1) only_begin_ = tokens_.front().content.front();
}

bool AddedTokens::is_local(SpecialTokenPolicy specials, bool normalized) const {
  return std::all_of(tokens_.begin(), tokens_.end(), [&](const AddedToken& one) {
    if (one.special && specials != SpecialTokenPolicy::tokenizer) return true;
    if (one.content.find(' ', 1) != std::string::npos || one.strips_right || one.strips_left) return false;
    return !normalized || one.content.find(metaspace, leading(metaspace, one.content)) == std::string::npos;
  });
}

std::size_t AddedTokens::next_begin(std::string_view text, std::size_t at) const {
  if (only_begin_) return text.find(*only_begin_, at);
  while (at < text.size() && !begins_[static_cast<std::uint8_t>(text[at])]) ++at;
  return at;
}

std::int32_t AddedTokens::longest_at(std::string_view text, std::size_t at) const {
  std::int32_t longest = -1;
  for (std::uint32_t node = 0; at < text.size(); ++at) {
    const auto& next = nodes_[node].next;
    const auto found = next.find(text[at]);
    if (found == next.end()) break;
    node = found->second;
    if (nodes_[node].ends >= 0) longest = nodes_[node].ends;
  }
  return longest;
}

bool AddedTokens::may_touch(std::string_view text, std::size_t at) const {
  constexpr std::size_t max_white_space = 256;
  std::size_t end = at;  // after the white space, which a token may strip
  for (char32_t c = character_behind(text, end); is_white_space(c); c = character_behind(text, end)) {
    if (end - at > max_white_space) return true;
    end += utf8_bytes(c);
  }
  if (end + longest_ > text.size()) return true;
  for (std::size_t from = at - std::min(at, longest_); from <= end; ++from) {
    if (!begins_[static_cast<std::uint8_t>(text[from])]) continue;
    const std::int32_t longest = longest_at(text, from);
    if (longest >= 0 && from + tokens_[static_cast<std::size_t>(longest)].content.size() >= at) return true;
  }
  return false;
}

std::optional<AddedTokens::Found> AddedTokens::find(std::string_view text, std::size_t from,
                                                    SpecialTokenPolicy specials) const {
  for (std::size_t at = next_begin(text, from); at < text.size(); at = next_begin(text, at + 1)) {
    const std::int32_t longest = longest_at(text, at);
    if (longest < 0) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(longest)];
    Found found{at, at + token.content.size(), token.token};
    const bool inside_word = token.single_word && (is_of_word(character_before(text, found.begin)) ||
                                                   is_of_word(character_behind(text, found.end)));
    if (inside_word || (token.special && specials != SpecialTokenPolicy::tokenizer)) {
      at = found.end - 1;  // matches do not overlap
      continue;
    }
    if (token.strips_left) {
      for (char32_t c = character_before(text, found.begin); found.begin > from && is_white_space(c);
           c = character_before(text, found.begin))
        found.begin -= utf8_bytes(c);
    }
    if (token.strips_right) {
      for (char32_t c = character_behind(text, found.end); is_white_space(c); c = character_behind(text, found.end))
        found.end += utf8_bytes(c);
    }
    return found;
  }
  return std::nullopt;
}

}  // namespace ranvier::models
