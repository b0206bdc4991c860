#include "models/text/question_file.hpp"

#include "models/text/question_source.hpp"
#include "tests/models/small_choices.hpp"
#include "tests/models/text_samples.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

const std::vector<SmallExample> examples = {
    {.context = {1, 2, 3}, .completions = {{4, 5}, {6}, {7, 8, 9}}, .right = 2},
    {.context = {10}, .completions = {{11}, {12, 13}}, .right = 0}};

struct Fixture {
  TemporaryFolder folder;
  std::string content = question_file(examples);

  [[nodiscard]] Error refusal(const std::string& changed) const {
    const auto path = folder.write("changed.bin", changed);
    return error_of([&] { const QuestionFile file(path, 20); });
  }
  /// The file with one word after the header replaced.
  [[nodiscard]] Error refusal(std::size_t word, std::uint16_t value) const {
    std::string changed = content;
    std::memcpy(changed.data() + 1024 + 2 * word, &value, sizeof value);
    return refusal(changed);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "questions are read in llm.c's format") {
  const QuestionFile file(folder.write("questions.bin", content), 20);
  REQUIRE(file.examples() == 2);
  REQUIRE(file.answers() == 5);
  CHECK(file.first_answer(1) == 3);
  CHECK(file.answers_of(0) == 3);
  CHECK(file.answers_of(1) == 2);
  CHECK(file.right_answer(0) == 2);
  CHECK(file.right_answer(1) == 0);
  CHECK(file.answer(4).example == 1);
  CHECK(std::ranges::equal(file.answer(2).context, std::vector{1, 2, 3}));
  CHECK(std::ranges::equal(file.answer(2).completion, std::vector{7, 8, 9}));
}

TEST_CASE_FIXTURE(Fixture, "an answer is a sample whose completion is scored") {
  QuestionSource source(std::make_shared<const QuestionFile>(folder.write("questions.bin", content), 20), 8);
  CHECK(source.samples() == 5);
  CHECK(source.positions_of(0, 5) == 8);
  CHECK(inputs(source, 2) == Tokens{1, 2, 3, 7, 8, 0, 0, 0});
  CHECK(targets(source, 2) == Tokens{2, 3, 7, 8, 9, 0, 0, 0});
  CHECK(source.scored(2).begin == 2);
  CHECK(source.scored(2).end == 5);
  CHECK(inputs(source, 3) == Tokens{10, 0, 0, 0, 0, 0, 0, 0});
  CHECK(source.scored(3).begin == 0);
  CHECK(source.scored(3).end == 1);
  CHECK(inputs(source, 5 + 2) == inputs(source, 2));  // padding of the last batch
  source.set_positions(5);
  CHECK(targets(source, 2) == Tokens{2, 3, 7, 8, 9});
}

TEST_CASE_FIXTURE(Fixture, "only the end of an answer longer than the context is scored") {
  QuestionSource source(std::make_shared<const QuestionFile>(folder.write("questions.bin", content), 20), 3);
  CHECK(inputs(source, 2) == Tokens{3, 7, 8});
  CHECK(targets(source, 2) == Tokens{7, 8, 9});
  CHECK(source.scored(2).begin == 0);
  CHECK(source.scored(2).end == 3);
  QuestionSource shorter(std::make_shared<const QuestionFile>(folder.path() / "questions.bin", 20), 1);
  CHECK(inputs(shorter, 2) == Tokens{8});  // only a part of the completion fits
  CHECK(shorter.scored(2).end == 1);
}

TEST_CASE_FIXTURE(InFolder, "answers use only a few sample sizes") {
  SmallExample longer{.context = std::vector<std::uint16_t>(40, 1), .completions = {{2}, {3}}, .right = 1};
  const auto path = folder.write("questions.bin", question_file({examples[0], longer}));
  const QuestionSource source(std::make_shared<const QuestionFile>(path, 20), 100);
  CHECK(source.positions_of(0, 3) == 32);
  CHECK(source.positions_of(0, 4) == 64);
}

TEST_CASE_FIXTURE(Fixture, "damaged question files are refused with file, offset and reason") {
  const auto refused = [&](const Error& error, std::string_view offset, std::string_view reason) {
    INFO(error.what());
    CHECK(says(error, ErrorCode::data, "changed.bin", offset, reason));
  };
  const auto with = [&](std::size_t offset, int byte) {
    std::string other = content;
    other[offset] = static_cast<char>(byte);
    return refusal(other);
  };
  refused(with(0, content[0] + 1), "offset 0", "20240523");
  refused(with(4, 2), "offset 4", "version at offset 4: 2");
  refused(with(8, 3), "offset 8", "8: 3, found 2");
  refused(refusal(content.substr(0, 1000)), "size 1000", "header of 1024");
  refused(refusal(content.substr(0, content.size() - 1)), "bytes", "words of 2");
  refused(refusal(0, 5), "offset 1024", "65535");
  refused(refusal(1, 2000), "offset 1026", "more than the rest of the file");
  refused(refusal(1, 2), "offset 1026", "more than the rest of the file");
  refused(refusal(2, 7), "offset 1028", "another number");
  refused(refusal(3, 3), "offset 1030", "right completion is not below 3: 3");
  refused(refusal(5, 60000), "offset 1034", "has 60000 tokens");
  refused(refusal(5, 0), "offset 1034", "has no token");
  refused(refusal(6, 20), "offset 1036", "token 20 is outside");
  refused(refusal(4, 4), "offset", "a completion is missing");
  refused(refusal(4, 2), "offset", "right");
  CHECK(error_of([&] { const QuestionFile file(folder.path() / "nothing.bin", 20); }).code() == ErrorCode::io);
  for (std::size_t bytes = 1024; bytes < content.size(); bytes += 2)
    CHECK(refusal(content.substr(0, bytes)).code() == ErrorCode::data);
}
