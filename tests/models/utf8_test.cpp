#include "models/tokenizers/unicode.hpp"
#include "tests/test.hpp"

using namespace ranvier::models;
using namespace std::string_view_literals;

TEST_CASE("the start of a character at the end of a text is recognized, byte by byte") {
  for (const std::string_view character : {"é"sv, "中"sv, "\xed\x9f\xbf"sv, "😀"sv, "\xf4\x8f\xbf\xbf"sv}) {
    CAPTURE(character);
    for (std::size_t count = 0; count < character.size(); ++count) {
      CHECK(unfinished_bytes(std::string("a").append(character.substr(0, count))) == count);
      CHECK(unfinished_bytes(character.substr(0, count)) == count);
    }
    CHECK(unfinished_bytes(std::string("a").append(character)) == 0);
  }
  CHECK(unfinished_bytes("") == 0);
}

TEST_CASE("bytes that no continuation could complete are not waited for") {
  // Bytes that never start a character, a surrogate, overlong forms, beyond the last character, stray continuations.
  for (const std::string_view bytes :
       {"\xc0"sv, "\xc1"sv, "\xf5"sv, "\xff"sv, "\xed\xa0"sv, "\xe0\x80"sv, "\xf0\x8f"sv, "\xf4\x90"sv, "\x80"sv,
        "\x80\x80\x80"sv, "\xe4\x41"sv, "a\xbf\xbf\xbf\xbf"sv}) {
    CAPTURE(bytes);
    CHECK(unfinished_bytes(bytes) == 0);
  }
  CHECK(unfinished_bytes("\xe4\xe4") == 1);
}
