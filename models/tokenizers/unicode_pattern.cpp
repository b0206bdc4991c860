#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/tokenizers/unicode_pattern.hpp"

#include "models/core/name_pattern.hpp"
#include "runtime/base/error.hpp"

#include <pcre2.h>

#include <algorithm>

namespace ranvier::models {
namespace {

// PCRE2's own \s has U+180E, which has not been White_Space since Unicode 6.3.
constexpr std::string_view blanks =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view of_words = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view hexadecimal = "0-9A-Fa-f";

/// Translates Oniguruma's syntax to PCRE2's, if the meaning differs.
std::string translated(std::string_view from, const std::string& where) {
  std::string to;
  bool in_class = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const char c = from[i];
    const auto refuse = [&](std::string_view what) {
      fail(ErrorCode::data, "{}: unsupported regular expression: {} has {} at character {}", where, from, what,
           i + 1);
    };
    if (c == '\\' && i + 1 < from.size()) {
      const char kind = from[++i];
      const std::string_view inside = kind == 's' || kind == 'S'   ? blanks
                                      : kind == 'w' || kind == 'W' ? of_words
                                      : kind == 'h' || kind == 'H' ? hexadecimal
                                                                   : std::string_view();
      const bool negated = kind == 'S' || kind == 'W' || kind == 'H';
      if (inside.empty()) {
        to += c;
        to += kind;
      } else if (in_class && negated) {
        refuse(fmt::format("\\{} in brackets", kind));
      } else if (in_class) {
        to += inside;
      } else {
        to += negated ? "[^" : "[";
        to += inside;
        to += ']';
      }
    } else if (in_class) {
      if (c == '[') {
        if (i + 1 >= from.size() || from[i + 1] != ':') refuse("brackets in brackets");
        const std::size_t end = std::min(from.find(":]", i + 2), from.size());
        to += from.substr(i, end - i);
        if (end < from.size()) to += ":]";
        i = end + 1;
        continue;
      }
      if (c == '&' && i + 1 < from.size() && from[i + 1] == '&') refuse("&& in brackets");
      if (c == ']') in_class = false;
      to += c;
    } else {
      to += c;
      if (c != '[') continue;
      in_class = true;
      if (i + 1 < from.size() && from[i + 1] == '^') to += from[++i];
      if (i + 1 < from.size() && from[i + 1] == ']') refuse("empty brackets");
    }
  }
  return to;
}

}  // namespace

struct UnicodePattern::Compiled {
  pcre2_code* code = nullptr;
  bool to_machine_code = false;

  ~Compiled() { pcre2_code_free(code); }
};

UnicodePattern::UnicodePattern(const std::string& expression, const std::string& where) : where_(where) {
  const std::string pattern = translated(expression, where);
  const auto compiled = std::make_shared<Compiled>();
  int error = 0;
  PCRE2_SIZE at = 0;
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (compiled->code == nullptr)
    fail(ErrorCode::data, "{}: invalid regular expression: {}: {}", where, expression, pattern_error(error));
  compiled->to_machine_code = pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE) == 0;
  compiled_ = compiled;
}

std::string UnicodePattern::literal(std::string_view text) {
  std::string expression;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80)
      expression += fmt::format("\\x{{{:02x}}}", static_cast<unsigned>(c));
    else
      expression += c;
  }
  return expression;
}

struct UnicodePattern::Finder::Storage {
  pcre2_match_data* match = nullptr;
  ~Storage() { pcre2_match_data_free(match); }
};

UnicodePattern::Finder::Finder(const UnicodePattern& pattern)
    : pattern_(pattern), storage_(std::make_unique<Storage>()) {
  storage_->match = pcre2_match_data_create(1, nullptr);
  expect(storage_->match != nullptr, "PCRE2 is out of memory");
}

UnicodePattern::Finder::~Finder() = default;

bool UnicodePattern::Finder::find(std::string_view text, std::size_t from, Match& match) {
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
  pcre2_code* const code = pattern_.compiled_->code;
  int groups = PCRE2_ERROR_JIT_STACKLIMIT;
  if (pattern_.compiled_->to_machine_code)
    groups = pcre2_jit_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, storage_->match, nullptr);
  if (groups == PCRE2_ERROR_JIT_STACKLIMIT)  // without machine code it takes its memory elsewhere
    groups =
        pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, storage_->match, nullptr);
  if (groups == PCRE2_ERROR_NOMATCH) return false;
  if (groups < 0)
    fail(ErrorCode::data, "{}: {} at byte {} of {} bytes of text; its regular expression is too hard to match",
         pattern_.where_, pattern_error(groups), from, text.size());
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(storage_->match);
  match = {ends[0], ends[1]};
  return true;
}

}  // namespace ranvier::models
