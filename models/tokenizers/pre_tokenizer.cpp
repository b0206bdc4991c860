#include "models/tokenizers/pre_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace ranvier::models {
namespace {

using Range = CutText::Range;

/// Expressions that are known to begin a word at every space behind another character: what may come before a space
/// in one of their words is white space alone.
bool begins_words_at_spaces(std::string_view expression) {
  static constexpr std::array known = {
      std::string_view(gpt2_expression),
      std::string_view(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
      std::string_view(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"),
      // LLaMA 3 and cl100k, Qwen2
      std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                       R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                       R"(\s*[\r\n]+|\s+(?!\S)|\s+)"),
      std::string_view(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|)"
                       R"( ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"),
      std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}|)"
                       R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      // o200k, Mistral's tekken
      std::string_view(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|)"
                       R"('re|'ve|'m|'ll|'d)?|)"
                       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|)"
                       R"('re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      std::string_view(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
                       R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      std::string_view(words_expression),
  };
  return std::find(known.begin(), known.end(), expression) != known.end();
}

/// Whether matches have a single character, as in Digits and UnicodePattern::literal(), so that none crosses a cut.
bool matches_one_character(std::string_view expression) {
  if (expression == R"(\p{N})") return true;
  if (expression.size() == 6 && expression.starts_with(R"(\x{)") && expression.ends_with('}')) return true;
  return expression.size() > 1 && character_bytes(expression, 0) == expression.size();
}

/// Turns matches and the text between them, from left to right, into words by a split behaviour.
class Splitter {
 public:
  Splitter(SplitBehavior behavior, bool inverted, std::vector<Range>& to)
      : behavior_(behavior), inverted_(inverted), to_(to), first_(to.size()) {}

  void add(Range range, bool matches) {
    if (range.begin == range.end) return;
    matches = matches != inverted_;
    const bool is_first = to_.size() == first_;
    bool joins = false;
    switch (behavior_) {
      case SplitBehavior::removed:
        if (matches) return;
        break;
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::merged_with_previous:
        joins = matches && !matched_before_;
        break;
      case SplitBehavior::merged_with_next:
        joins = matched_before_ && !matches;
        break;
      case SplitBehavior::contiguous:
        joins = matches == matched_before_;
        break;
    }
    matched_before_ = matches;
    if (joins && !is_first) {
      to_.back().end = range.end;
    } else {
      to_.push_back(range);
    }
  }

 private:
  SplitBehavior behavior_;
  bool inverted_;
  std::vector<Range>& to_;
  std::size_t first_;
  bool matched_before_ = false;
};

/// Replaces each word by the words that cut(range, to) appends.
template <typename Cut>
void cut_words(CutText& words, Cut&& cut) {
  std::vector<Range> ranges;
  ranges.reserve(std::max(words.ranges.size(), words.text.size() / 4));
  for (const Range range : words.ranges) cut(range, ranges);
  words.ranges.swap(ranges);
}

/// Takes characters one by one.
template <typename IsMatch>
void split_characters(CutText& words, SplitBehavior behavior, IsMatch&& is_match) {
  cut_words(words, [&](const Range range, std::vector<Range>& to) {
    Splitter splitter(behavior, false, to);
    std::size_t at = range.begin, done = range.begin;
    for_each_character(std::string_view(words.text).substr(range.begin, range.end - range.begin),
                       [&](char32_t c, std::string_view bytes) {
                         if (is_match(c)) {
                           splitter.add({done, at}, false);
                           done = at + bytes.size();
                           splitter.add({at, done}, true);
                         }
                         at += bytes.size();
                       });
    splitter.add({done, range.end}, false);
  });
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return !(c >= 0x4e00 && c <= 0x9fff) && is_punctuation(c);
}

/// Whether the first word begins the text: nothing before it was dropped.
bool begins_with_word(const CutText& words) { return !words.ranges.empty() && words.ranges.front().begin == 0; }

/// Rewrites words: `edit(word, to)` appends the new text of a word. Text before the first word stays.
template <typename Edit>
void rewrite(CutText& words, Edit&& edit) {
  CutText to;
  to.text.reserve(words.text.size() + words.text.size() / 2);
  if (!words.ranges.empty()) to.text.assign(words.text, 0, words.ranges.front().begin);
  for (const Range range : words.ranges) {
    const std::size_t begin = to.text.size();
    edit(std::string_view(words.text).substr(range.begin, range.end - range.begin), to.text);
    if (to.text.size() > begin) to.ranges.push_back({begin, to.text.size()});
  }
  words = std::move(to);
}

/// Cuts before each `mark` inside words; `runs`: not inside runs of it.
void cut_before(CutText& words, std::string_view mark, bool runs) {
  cut_words(words, [&](const Range range, std::vector<Range>& to) {
    const std::string_view word = std::string_view(words.text).substr(0, range.end);
    std::size_t begin = range.begin;
    for (std::size_t at = word.find(mark, begin + 1); at != std::string_view::npos; at = word.find(mark, at + 1)) {
      if (runs && word.substr(range.begin, at - range.begin).ends_with(mark)) continue;
      to.push_back({begin, at});
      begin = at;
    }
    to.push_back({begin, range.end});
  });
}

}  // namespace

PreTokenizer split_by(const std::string& expression, const std::string& where, SplitBehavior behavior,
                      bool inverted) {
  const auto cut = [pattern = UnicodePattern(expression, where), behavior, inverted](CutText& words, TextPosition) {
    UnicodePattern::Finder finder(pattern);
    cut_words(words, [&](const Range range, std::vector<Range>& to) {
      Splitter splitter(behavior, inverted, to);
      std::size_t done = range.begin;
      UnicodePattern::for_each(finder, std::string_view(words.text).substr(range.begin, range.end - range.begin),
                               [&](UnicodePattern::Match match) {
                                 splitter.add({done, range.begin + match.begin}, false);
                                 done = range.begin + match.end;
                                 splitter.add({range.begin + match.begin, done}, true);
                               });
      splitter.add({done, range.end}, false);
    });
  };
  const bool removes = behavior == SplitBehavior::removed;
  const bool cuts_before_spaces =
      (removes || behavior == SplitBehavior::isolated) && begins_words_at_spaces(expression);
  return {.cut = cut,
          .cuts_before_spaces = cuts_before_spaces,
          .is_local = cuts_before_spaces || matches_one_character(expression),
          .cuts_between_blanks = removes && inverted && expression == words_expression};
}

PreTokenizer split_by_punctuation(SplitBehavior behavior) {
  const auto cut = [behavior](CutText& words, TextPosition) {
    split_characters(words, behavior, is_bert_punctuation);
  };
  return {.cut = cut, .is_local = true};
}

PreTokenizer split_by_white_space() {
  const auto cut = [](CutText& words, TextPosition) {
    split_characters(words, SplitBehavior::removed, is_white_space);
  };
  return {.cut = cut, .cuts_before_spaces = true, .cuts_between_blanks = true};
}

PreTokenizer split_as_bert() {
  const auto cut = [](CutText& words, TextPosition) {
    cut_words(words, [&](const Range range, std::vector<Range>& to) {
      std::size_t at = range.begin, begin = range.begin;
      const auto end_word = [&] {
        if (begin < at) to.push_back({begin, at});
      };
      for_each_character(std::string_view(words.text).substr(range.begin, range.end - range.begin),
                         [&](char32_t c, std::string_view bytes) {
                           const bool is_blank = is_white_space(c);
                           if (is_blank || is_bert_punctuation(c)) {
                             end_word();
                             begin = at + bytes.size();
                             if (!is_blank) to.push_back({at, begin});
                           }
                           at += bytes.size();
                         });
      end_word();
    });
  };
  return {.cut = cut, .cuts_before_spaces = true, .cuts_between_blanks = true};
}

PreTokenizer prefix_space() {
  const auto cut = [](CutText& words, TextPosition place) {
    bool joins = !place.begins && begins_with_word(words);  // what goes on with a text that was cut
    rewrite(words, [&](std::string_view word, std::string& to) {
      if (!std::exchange(joins, false) && word.front() != ' ') to += ' ';
      to += word;
    });
  };
  return {.cut = cut, .is_local = true};
}

PreTokenizer split_by_metaspace(const Metaspace& what) {
  const auto cut = [what](CutText& words, TextPosition place) {
    bool is_first = begins_with_word(words);
    rewrite(words, [&](std::string_view word, std::string& to) {
      const bool goes_on = is_first && !place.begins;  // with a text that was cut
      const bool prepends = what.prepend == Metaspace::Prepend::always ||
                            (what.prepend == Metaspace::Prepend::first && is_first && place.first);
      is_first = false;
      if (prepends && !goes_on && word.front() != ' ' && !word.starts_with(what.replacement))
        to += what.replacement;
      for (const char c : word) {
        if (c == ' ')
          to += what.replacement;
        else
          to += c;
      }
    });
    if (what.splits) cut_before(words, what.replacement, false);
  };
  return {.cut = cut, .cuts_before_spaces = what.splits, .cuts_between_blanks = what.splits};
}

PreTokenizer split_before(std::string mark) {
  const auto cut = [mark = std::move(mark)](CutText& words, TextPosition) { cut_before(words, mark, true); };
  return {.cut = cut, .cuts_before_spaces = true};
}

}  // namespace ranvier::models
