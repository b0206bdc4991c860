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

class ByExpression final : public PreTokenizer {
 public:
  ByExpression(const std::string& expression, const std::string& where, SplitBehavior behavior, bool inverted)
      : pattern_(expression, where), behavior_(behavior), inverted_(inverted) {
    const bool keeps_words = behavior == SplitBehavior::isolated || behavior == SplitBehavior::removed;
    cuts_ = keeps_words && begins_words_at_spaces(expression);
    is_local_ = cuts_ || matches_one_character(expression);
    drops_blanks_ = behavior == SplitBehavior::removed && inverted && expression == words_expression;
  }
  void cut(CutText& words, TextPosition) const override {
    UnicodePattern::Finder finder(pattern_);
    cut_words(words, [&](const Range range, std::vector<Range>& to) {
      Splitter splitter(behavior_, inverted_, to);
      std::size_t done = range.begin;
      UnicodePattern::for_each(finder, std::string_view(words.text).substr(range.begin, range.end - range.begin),
                               [&](UnicodePattern::Match match) {
                                 splitter.add({done, range.begin + match.begin}, false);
                                 done = range.begin + match.end;
                                 splitter.add({range.begin + match.begin, done}, true);
                               });
      splitter.add({done, range.end}, false);
    });
  }
  [[nodiscard]] bool cuts_before_spaces() const override { return cuts_; }
  [[nodiscard]] bool is_local() const override { return is_local_; }
  [[nodiscard]] bool cuts_between_blanks() const override { return drops_blanks_; }

 private:
  UnicodePattern pattern_;
  SplitBehavior behavior_;
  bool inverted_, cuts_ = false, is_local_ = false, drops_blanks_ = false;
};

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

class ByPunctuation final : public PreTokenizer {
 public:
  explicit ByPunctuation(SplitBehavior behavior) : behavior_(behavior) {}
  void cut(CutText& words, TextPosition) const override { split_characters(words, behavior_, is_bert_punctuation); }
  [[nodiscard]] bool cuts_before_spaces() const override { return false; }
  [[nodiscard]] bool is_local() const override { return true; }

 private:
  SplitBehavior behavior_;
};

struct ByWhiteSpace final : PreTokenizer {
  void cut(CutText& words, TextPosition) const override {
    split_characters(words, SplitBehavior::removed, is_white_space);
  }
  [[nodiscard]] bool cuts_before_spaces() const override { return true; }
  [[nodiscard]] bool cuts_between_blanks() const override { return true; }
};

struct AsBert final : PreTokenizer {
  void cut(CutText& words, TextPosition) const override {
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
  }
  [[nodiscard]] bool cuts_before_spaces() const override { return true; }
  [[nodiscard]] bool cuts_between_blanks() const override { return true; }
};

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

struct PrefixSpace final : PreTokenizer {
  void cut(CutText& words, TextPosition place) const override {
    bool joins = !place.begins && begins_with_word(words);  // what goes on with a text that was cut
    rewrite(words, [&](std::string_view word, std::string& to) {
      if (!std::exchange(joins, false) && word.front() != ' ') to += ' ';
      to += word;
    });
  }
  [[nodiscard]] bool cuts_before_spaces() const override { return false; }
  [[nodiscard]] bool is_local() const override { return true; }
};

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

class SplitBefore final : public PreTokenizer {
 public:
  explicit SplitBefore(std::string mark) : mark_(std::move(mark)) {}
  void cut(CutText& words, TextPosition) const override { cut_before(words, mark_, true); }
  [[nodiscard]] bool cuts_before_spaces() const override { return true; }

 private:
  std::string mark_;
};

class ByMetaspace final : public PreTokenizer {
 public:
  explicit ByMetaspace(Metaspace what) : what_(std::move(what)) {}
  void cut(CutText& words, TextPosition place) const override {
    bool is_first = begins_with_word(words);
    rewrite(words, [&](std::string_view word, std::string& to) {
      const bool goes_on = is_first && !place.begins;  // with a text that was cut
      const bool prepends = what_.prepend == Metaspace::Prepend::always ||
                            (what_.prepend == Metaspace::Prepend::first && is_first && place.first);
      is_first = false;
      if (prepends && !goes_on && word.front() != ' ' && !word.starts_with(what_.replacement))
        to += what_.replacement;
      for (const char c : word) {
        if (c == ' ')
          to += what_.replacement;
        else
          to += c;
      }
    });
    if (what_.splits) cut_before(words, what_.replacement, false);
  }
  [[nodiscard]] bool cuts_before_spaces() const override { return what_.splits; }
  [[nodiscard]] bool cuts_between_blanks() const override { return what_.splits; }

 private:
  Metaspace what_;
};

}  // namespace

std::unique_ptr<const PreTokenizer> split_by(const std::string& expression, const std::string& where,
                                             SplitBehavior behavior, bool inverted) {
  return std::make_unique<ByExpression>(expression, where, behavior, inverted);
}
std::unique_ptr<const PreTokenizer> split_by_punctuation(SplitBehavior behavior) {
  return std::make_unique<ByPunctuation>(behavior);
}
std::unique_ptr<const PreTokenizer> split_by_white_space() { return std::make_unique<ByWhiteSpace>(); }
std::unique_ptr<const PreTokenizer> split_as_bert() { return std::make_unique<AsBert>(); }
std::unique_ptr<const PreTokenizer> prefix_space() { return std::make_unique<PrefixSpace>(); }
std::unique_ptr<const PreTokenizer> split_by_metaspace(Metaspace what) {
  return std::make_unique<ByMetaspace>(std::move(what));
}
std::unique_ptr<const PreTokenizer> split_before(std::string mark) {
  return std::make_unique<SplitBefore>(std::move(mark));
}

}  // namespace ranvier::models
