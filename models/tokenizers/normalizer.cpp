#include "models/tokenizers/normalizer.hpp"

#include <utility>

namespace ranvier::models {
namespace {

using Local = Normalizer::Local;

bool is_ascii(std::string_view text) {
  unsigned all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

std::string in_lowercase(std::string_view text) {
  std::string to;
  to.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c < 0x80) {
      to += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    } else if (c >= 0x3000 && c < 0xa000) {  // no letters of two cases
      to += bytes;
    } else {
      append_lowercase(c, to);
    }
  });
  return to;
}

std::string without(bool (*is_accent)(char32_t), std::string_view text) {
  std::string to;
  to.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (!is_accent(c)) to += bytes;
  });
  return to;
}

bool begins_with_space(std::string_view text) { return text.starts_with(' ') || text.starts_with(metaspace); }

/// Whether what comes behind may be behind a blank then.
bool ends_blank(std::string_view text) {
  bool blank = true;
  for_each_character(text, [&](char32_t c, std::string_view) { blank = is_white_space(c) || c == 0x2581; });
  return blank;
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) ||
         (c >= 0x2b920 && c <= 0x2ceaf) ||  // like the tokenizers package; the Unicode block starts at U+2B820
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string cleaned(BertNormalization what, std::string_view text) {
  std::string to;
  to.reserve(text.size() + text.size() / 4);
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c > ' ' && c < 0x7f) {
      to += static_cast<char>(c);
      return;
    }
    if (what.clean_text) {
      if (is_white_space(c)) {
        if (c != '\v' && c != '\f' && c != 0x85) to += ' ';  // control characters
        return;
      }
      if (c == 0xfffd || is_control(c)) return;
    }
    if (what.handle_chinese_chars && is_ideograph(c)) {
      to += ' ';
      to += bytes;
      to += ' ';
    } else {
      to += bytes;
    }
  });
  return to;
}

}  // namespace

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    result.append(text, done, at - done);
    result += to;
    done = at + from.size();
  }
  result.append(text, done);
  text = std::move(result);
}

Normalizer normal_form(NormalForm form) {
  return {[form](std::string& text, TextPosition) {
    if (!is_ascii(text)) text = normalized(text, form);
  }};
}

Normalizer lowercase() {
  return {[](std::string& text, TextPosition) { text = in_lowercase(text); }};
}

Normalizer strip_accents() {
  const auto apply = [](std::string& text, TextPosition) {
    if (!is_ascii(text)) text = without(is_mark, text);
  };
  return {apply, Local::between_blanks};
}

Normalizer strip(bool left, bool right) {
  const auto apply = [left, right](std::string& text, TextPosition) {
    std::size_t begin = text.size(), end = 0, at = 0;
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      if (!is_white_space(c)) {
        begin = std::min(begin, at);
        end = at + bytes.size();
      }
      at += bytes.size();
    });
    if (!left) begin = 0;
    if (!right || end < begin) end = right ? begin : text.size();
    text = text.substr(begin, end - begin);
  };
  return {apply, Local::no};
}

Normalizer prepend(std::string before) {
  return {[before = std::move(before)](std::string& text, TextPosition place) {
    if (place.begins && !text.empty()) text.insert(0, before);
  }};
}

Normalizer replace_text(std::string from, std::string to) {
  const auto inside = [&](std::string_view blank) { return from.find(blank, 1) != std::string::npos; };
  Local local = ends_blank(to) ? Local::between_blanks : Local::yes;
  // A match may cross a cut, or the text after a cut might then not begin with a space.
  if (inside(" ") || inside(metaspace) || (begins_with_space(from) && !begins_with_space(to))) local = Local::no;
  if (from == " " || from == metaspace) local = Local::yes;
  return {[from = std::move(from), to = std::move(to)](std::string& text, TextPosition) {
            replace_all(text, from, to);
          },
          local};
}

Normalizer replace_matches(UnicodePattern from, std::string to) {
  const auto apply = [from = std::move(from), to = std::move(to)](std::string& text, TextPosition) {
    UnicodePattern::Finder finder(from);
    std::string result;
    std::size_t done = 0;
    UnicodePattern::for_each(finder, text, [&](UnicodePattern::Match match) {
      result.append(text, done, match.begin - done);
      result += to;
      done = match.end;
    });
    if (done == 0 && result.empty()) return;
    result.append(text, done);
    text = std::move(result);
  };
  return {apply, Local::no};
}

Normalizer bert_normalizer(BertNormalization what) {
  const auto apply = [what](std::string& text, TextPosition) {
    if (what.clean_text || what.handle_chinese_chars) text = cleaned(what, text);
    if (what.strip_accents && !is_ascii(text))
      text = without(is_nonspacing_mark, normalized(text, NormalForm::decomposed));
    if (what.lowercase) text = in_lowercase(text);
  };
  return {apply, Local::between_blanks};
}

Normalizer sentencepiece_normalizer(SentencePieceNormalization what) {
  return {[what](std::string& text, TextPosition place) {
    std::string to;
    to.reserve(text.size() + text.size() / 2 + 3);
    const std::string_view space = what.escape_whitespaces ? metaspace : " ";
    const bool squeezes = what.remove_extra_whitespaces;
    std::size_t begin = 0;
    if (squeezes && place.first) begin = std::min(text.find_first_not_of(' '), text.size());
    if (what.add_dummy_prefix && place.first && begin < text.size()) to += space;
    std::size_t end = text.size();
    if (squeezes) end = std::max(begin, text.find_last_not_of(' ') + 1);
    for (std::size_t i = begin; i < end; ++i) {
      if (text[i] != ' ')
        to += text[i];
      else if (!squeezes || i == begin || text[i - 1] != ' ')
        to += space;
    }
    text = std::move(to);
  }};
}

}  // namespace ranvier::models
