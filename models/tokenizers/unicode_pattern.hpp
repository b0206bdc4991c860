// Regular expression of a tokenizer on UTF-8, in Oniguruma's syntax, matched by PCRE2. Any thread.
//
// \s is Unicode's White_Space. \w is letters, marks, digits and connecting punctuation. \h is a hexadecimal digit. ^
// and $ match at every line break.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ranvier::models {

class UnicodePattern {
 public:
  struct Match {
    std::size_t begin = 0, end = 0;
  };

  /// Throws ErrorCode::data, naming `where`, the error and its position, if `expression` is invalid or has another
  /// meaning in PCRE2.
  UnicodePattern(const std::string& expression, const std::string& where);

  /// Expression that matches `text` literally.
  [[nodiscard]] static std::string literal(std::string_view text);

  /// Finds matches in UTF-8 text. One thread at a time.
  class Finder {
   public:
    explicit Finder(const UnicodePattern& pattern);
    ~Finder();
    Finder(const Finder&) = delete;
    Finder& operator=(const Finder&) = delete;

    /// Sets `match` to the first match at or after `from`; false: there is none. Throws ErrorCode::data, naming the
    /// source of the expression, if it backtracks too long.
    [[nodiscard]] bool find(std::string_view text, std::size_t from, Match& match);

   private:
    struct Storage;
    const UnicodePattern& pattern_;
    std::unique_ptr<Storage> storage_;
  };

  /// Calls f(match) for all matches, from left to right. An empty match directly after another one is skipped.
  template <typename F>
  static void for_each(Finder& finder, std::string_view text, F&& f) {
    Match match;
    std::size_t from = 0, last_end = std::string_view::npos;
    while (from <= text.size() && finder.find(text, from, match)) {
      if (match.begin != match.end || match.end != last_end) f(match);
      last_end = match.end;
      from = match.end;
      if (match.begin != match.end) continue;
      for (++from; from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80;) ++from;
    }
  }

 private:
  struct Compiled;

  std::string where_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace ranvier::models
