#include "models/text/instruction_source.hpp"

#include "models/text/text_source.hpp"
#include "tests/models/small_tokenizer.hpp"
#include "tests/models/text_samples.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

std::string line(const std::string& prompt, const std::string& answer) {
  return R"({"q": ")" + prompt + R"(", "a": ")" + answer + "\"}\n";
}

TextDataOptions options_of(const std::filesystem::path& path, int length) {
  return {.path = path, .reading = {.json_field = "a", .prompt_field = "q"}, .sequence_length = length};
}

constexpr std::int32_t none = no_target, end = '\n';

}  // namespace

TEST_CASE(
    "completions are packed without splitting, have losses up to their ends, and attend only to their prompts") {
  const TemporaryFolder folder;
  // With 4, 3, 2, 6 and 1 positions; a line without a completion is skipped.
  const auto path = folder.write("a.jsonl", line("xy", "AB") + line("z", "CD") + line("", "EF") + line("p", "") +
                                                line("uvw", "GHI") + line("", "J"));
  const auto data = open_text_data(options_of(path, 8));
  const SampleSource& source = *data.training;
  CHECK(source.samples() == 3);
  CHECK(data.origins[0].documents == 5);
  CHECK(data.tokens == 21);
  CHECK(inputs(source, 0, 2) ==
        Tokens{'x', 'y', 'A', 'B', 'z', 'C', 'D', 0, 'E', 'F', 'u', 'v', 'w', 'G', 'H', 'I'});
  CHECK(targets(source, 0, 2) ==
        Tokens{none, 'A', 'B', end, 'C', 'D', end, none, 'F', end, none, none, 'G', 'H', 'I', end});
  CHECK(starts(source, 0, 2) == Tokens{0, 0, 0, 0, 4, 4, 4, 7, 0, 0, 2, 2, 2, 2, 2, 2});
  CHECK(targets(source, 2, 1) == Tokens{end, none, none, none, none, none, none, none});
  CHECK(starts(source, 2, 1) == Tokens{0, 1, 2, 3, 4, 5, 6, 7});  // padding attends only to itself
  for (const auto& [sample, padding] : {std::pair{0, 1}, {1, 0}, {2, 7}}) CHECK(source.padding(sample) == padding);
  CHECK(source.losses(0, 1) == 6);
  CHECK(source.losses(0, 4) == 6 + 6 + 1 + 6);
  CHECK(source.losses_per_sample() == 8);
}

TEST_CASE_FIXTURE(InFolder, "examples longer than a sample are truncated, and skipped if no completion is left") {
  const auto path = folder.write("a.jsonl", line("xy", "ABCDEF") + line("uvwxyz", "G") + line("p", "Q"));
  const auto data = open_text_data(options_of(path, 4));
  CHECK(inputs(*data.training, 0, 2) == Tokens{'x', 'y', 'A', 'B', 'p', 'Q', 0, 0});
  CHECK(targets(*data.training, 0, 2) == Tokens{none, 'A', 'B', 'C', 'Q', end, none, none});
  REQUIRE(data.origins[0].remarks.size() == 1);
  CHECK(data.origins[0].remarks[0] == path.string() +
                                          ": 1 of 3 completions are truncated at `sequence_length` 4, "
                                          "and 1 skipped (prompt too long)");
  CHECK(says(refusal_of(options_of(folder.write("b.jsonl", line("uvwxyz", "G")), 4)),
             "none of 1 completions fits `sequence_length` 4", "increase `sequence_length`"));
  CHECK(says(refusal_of(options_of(folder.write("c.jsonl", line("u", "")), 4)), "use lines with a completion"));
  CHECK(says(refusal_of(options_of(folder.write("d.txt", "text"), 4)), "d.txt: `prompt_field` q needs JSON lines"));
  auto other = options_of(path, 4);
  other.reading.prompt_field = "ask";
  CHECK(says(refusal_of(other), "a.jsonl: line 1: field 'ask' is missing, found 'q', 'a'", "`prompt_field`"));
  auto narrow = options_of(path, 4);
  narrow.vocab_size = 100;
  CHECK(says(refusal_of(narrow), "token 121 is outside `vocab_size` 100; use at least 122"));
}

TEST_CASE("a prompt may have several fields, and rows without a completion or with unread text are counted") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.jsonl", R"({"q": "ab", "input": "c", "a": "X"})"
                                            "\n"
                                            R"({"q": "d", "input": "", "a": "Y"})"
                                            "\n\n"
                                            R"({"q": "e", "input": "f", "a": ""})"
                                            "\n");
  auto options = options_of(path, 8);
  using Remarks = std::vector<std::string>;
  const std::string empty = path.string() + ": skipped rows with an empty field 'a': 1 of 3";
  CHECK(open_text_data(options).origins[0].remarks ==
        Remarks{empty, path.string() + ": field 'input' of 2 of 3 rows has text, but is not read; use "
                                       "`prompt_field` q,input to read both fields"});
  options.reading.prompt_field = "q,input";
  const auto data = open_text_data(options);
  CHECK(data.origins[0].remarks == Remarks{empty});
  CHECK(inputs(*data.training, 0, 1) == Tokens{'a', 'b', '\n', 'c', 'X', 'd', 'Y', 0});
  CHECK(targets(*data.training, 0, 1) == Tokens{none, none, none, 'X', end, 'Y', end, none});
}

TEST_CASE("prompt and completion are encoded separately, and the tokenizer's end of text ends the completion") {
  const TemporaryFolder folder;
  const tests::SmallTokenizer small;
  auto options = options_of(folder.write("a.jsonl", line("in th", "e world") + line("the", " end")), 30);
  options.tokenizer = folder.write("tokenizer.json", small.tokenizer_json());
  options.vocab_size = 300;
  for (const int threads : {1, 2}) {
    options.threads = threads;
    const auto data = open_text_data(options);
    Tokens expected;
    for (const auto& [prompt, answer] : {std::pair{"in th", "e world"}, {"the", " end"}}) {
      const Tokens before = small.encoded(prompt);
      expected.insert(expected.end(), before.size() - 1, none);
      for (const auto token : small.encoded(answer)) expected.push_back(token);
      expected.push_back(small.end_of_text());
    }
    expected.resize(30, none);
    CHECK(targets(*data.training, 0, 1) == expected);
  }
  // The prompt starts with the tokenizer's start of text, which has no loss.
  folder.write("tokenizer.json", small.framed_json("<s> A"));
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  Tokens in{285}, out(small.encoded("in th").size(), none);
  for (const char* part : {"in th", "e world"})
    for (const auto token : small.encoded(part)) in.push_back(token);
  for (const auto token : small.encoded("e world")) out.push_back(token);
  out.push_back(286);
  const auto data = open_text_data(options);
  const auto begin = [&](const Tokens& all) { return Tokens(all.begin(), all.begin() + std::ssize(in)); };
  CHECK(begin(inputs(*data.training, 0, 1)) == in);
  CHECK(begin(targets(*data.training, 0, 1)) == out);
  // A completion that spells the end of text has only one.
  options.path = folder.write("b.jsonl", line("in th", "e world</s>"));
  const auto spelled = open_text_data(options);
  CHECK(spelled.tokens == std::ssize(in) + 1);
}
