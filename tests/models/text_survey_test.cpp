#include "models/text/text_survey.hpp"

#include "runtime/base/philox.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

TextSurvey survey_of(std::string_view text, std::size_t piece = 1u << 20) {
  TextSurvey survey;
  for (std::size_t at = 0; at < text.size(); at += piece) survey.add(text.substr(at, piece));
  CHECK(survey.bytes() == text.size());
  return survey;
}

}  // namespace

TEST_CASE("text in any script has no invalid bytes, split into pieces anywhere") {
  const std::string text = std::string(70, 'a') + "\tÄpfel\r\n漢字 \xf0\x9f\x98\x80 \f" + std::string(130, 'z');
  for (std::size_t piece = 1; piece < 100; ++piece) {
    const TextSurvey survey = survey_of(text, piece);
    CAPTURE(piece);
    CHECK(survey.strange() == 0);
    CHECK(!survey.first());
  }
}

TEST_CASE("bytes outside characters, and control characters, are counted and the first is found") {
  std::string text(200, 'a');
  text[130] = '\xe4';  // Latin-1
  text[131] = '\0';
  text[199] = '\x7f';
  const TextSurvey survey = survey_of(text);
  CHECK(survey.strange() == 3);
  CHECK(survey.first() == 130);
  CHECK(survey.is_text());
  CHECK(survey_of("abc\xc3").first() == 3);
  CHECK(survey_of("abc\xc3xyz", 4).strange() == 1);
  CHECK(remark_on(survey, "a.txt") == "a.txt: 3 of the 200 bytes examined are not UTF-8, the first at offset 130");
}

TEST_CASE("bytes of another encoding outnumber the characters of UTF-8, and damage does not") {
  CHECK(survey_of("sch\xf6n, gr\xfc\xdf.", 5).is_other_encoding());
  CHECK(survey_of("sch\xf6n, gr\xfc\xdf.", 5).first_stray() == 3);
  CHECK(!survey_of("\xf6\xf6").is_other_encoding());
  CHECK(!survey_of("plain text, a truncated \xf0\x9f\x98, and more").is_other_encoding());
  CHECK(!survey_of("äöüß \xf6\xf6\xf6", 3).is_other_encoding());
  CHECK(!survey_of(std::string("\0\x01\x02\x03", 4)).is_other_encoding());
  CHECK(remark_on(survey_of("gr\xfc\xdf"
                            "e \xfc"),
                  "a.txt")
            .ends_with("'a.txt' > 'a.txt.utf8', with the file's encoding after -f"));
}

TEST_CASE("numbers and random bytes are not text, and damaged text is") {
  std::string random, numbers, damaged;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    const auto bits = runtime::philox({1, 2}, {i, 0, 0, 0});
    random += static_cast<char>(bits[0]);
    numbers += static_cast<char>(bits[1] % 65);
    numbers += '\0';
    damaged += bits[2] % 10 == 0 ? '\xff' : 'x';
  }
  CHECK(!survey_of(random).is_text());
  CHECK(!survey_of(numbers).is_text());
  CHECK(survey_of(damaged).is_text());
  CHECK(survey_of("\xff\xff").is_text());
}
