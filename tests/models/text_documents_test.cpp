// Which positions of text samples belong together, which have no loss, and how many have one.
#include "models/core/filtered_samples.hpp"
#include "models/text/text_source.hpp"
#include "tests/models/small_tokenizer.hpp"
#include "tests/models/text_samples.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

TEST_CASE("positions store the first one of their document, and no target crosses a document's end") {
  const TemporaryFolder folder;
  TextDataOptions options{.path = folder.write("a.jsonl", json_lines({"ab", "c", "defg"})), .sequence_length = 4};
  const auto joined = open_text_data(options);
  CHECK(joined.training->sample_bytes().documents == 0);
  CHECK(joined.training->losses(5, 3) == 12);

  options.documents = Documents::mask;
  const auto data = open_text_data(options);  // a b . c . d e f g .
  const SampleSource& source = *data.training;
  CHECK(data.origins[0].documents == 3);
  CHECK(source.sample_bytes().documents == 48);
  CHECK(targets(source, 0, 2) == Tokens{'b', '\n', no_target, '\n', no_target, 'e', 'f', 'g'});
  CHECK(starts(source, 0, 2) == Tokens{0, 0, 0, 3, 0, 1, 1, 1});
  CHECK(documents(source, 0, 2) == Tokens{0, 0, 0, 3, 0, 1, 1, 1, 0, 1, 2, 0, 0, 0, 1, 2, 3, 3, 3, 4, 1, 4, 4, 4});
  CHECK(source.losses(0, 1) == 3);
  CHECK(source.losses(0, 2) == 6);
  // Where the data wrap to their start, another document starts.
  CHECK(targets(source, 2, 1) == Tokens{'\n', no_target, 'b', '\n'});
  CHECK(starts(source, 2, 1) == Tokens{0, 0, 2, 2});
  CHECK(source.losses(2, 1) == 3);
}

TEST_CASE_FIXTURE(InFolder, "losses are counted by targets, with any order, weights and excluded samples") {
  std::vector<std::uint16_t> tokens;
  for (std::uint16_t i = 0; i < 400; ++i) tokens.push_back(i * i % 11 == 4 || i % 29 < 3 ? 7 : 1);
  const auto a = folder.write("a.bin", shorts(tokens)).string();
  std::rotate(tokens.begin(), tokens.begin() + 50, tokens.end());
  const auto b = folder.write("b.bin", shorts(tokens)).string();
  const auto data = open_text_data({.mixture = {{a, 2}, {b, 1}},
                                    .reading = {.format = TokenFormat::uint16},
                                    .sequence_length = 10,
                                    .shuffle_seed = 3,
                                    .documents = Documents::mask,
                                    .document_end = 7});
  FilteredSamples kept(*data.training);
  kept.leave_out({5, 4});
  const auto counted = [](const SampleSource& source, std::int64_t first, int count) {
    return with_loss(targets(source, first, count));
  };
  for (const SampleSource* const source : std::initializer_list<const SampleSource*>{data.training.get(), &kept}) {
    CHECK(source->losses(0, 100) == counted(*source, 0, 100));
    CHECK(source->losses(0, 100) < 1000);
    CHECK(source->losses(3, 5) == counted(*source, 3, 5));
  }
  CHECK(starts(kept, 5, 2) == starts(*data.training, 9, 2));
}

TEST_CASE("in token files without an index documents end with a token, which must be given and exist") {
  const TemporaryFolder folder;
  folder.write("tokens/a.bin", shorts({1, 2, 9, 3, 4}));
  folder.write("tokens/b.bin", shorts({5, 9, 9, 6, 9}));
  TextDataOptions options{.path = folder.path() / "tokens",
                          .reading = {.format = TokenFormat::uint16},
                          .sequence_length = 9,
                          .documents = Documents::mask,
                          .document_end = 9};
  const auto data = open_text_data(options);
  CHECK(starts(*data.training, 0, 1) == Tokens{0, 0, 0, 3, 3, 5, 5, 7, 8});  // a file starts one, too
  CHECK(data.origins[0].documents == 5);
  options.document_end = 8;
  CHECK(says(refusal_of(options), "tokens: end-of-document token 8 separates none of 10 tokens in 2 files"));
  options.document_end.reset();
  CHECK(says(refusal_of(options), "a.bin: `documents` mask", "add `document_end` TOKEN", "50256",
             "`documents` join"));
}

TEST_CASE_FIXTURE(InFolder, "tokenized text ends with the end of text, which belongs to the preceding document") {
  const tests::SmallTokenizer small;
  folder.write("texts/a.txt", "in the end");
  folder.write("texts/b.txt", "the world");
  const int a = static_cast<int>(small.encoded("in the end").size());
  const int b = static_cast<int>(small.encoded("the world").size());
  const auto data = open_text_data({.path = folder.path() / "texts",
                                    .tokenizer = folder.write("tokenizer.json", small.tokenizer_json()),
                                    .sequence_length = a + b,
                                    .vocab_size = 300,
                                    .documents = Documents::mask});
  Tokens expected(static_cast<std::size_t>(a + b), 0);
  std::fill(expected.begin() + a + 1, expected.end(), a + 1);
  CHECK(starts(*data.training, 0, 1) == expected);
  CHECK(targets(*data.training, 0, 1)[static_cast<std::size_t>(a - 1)] == small.end_of_text());
  CHECK(targets(*data.training, 0, 1)[static_cast<std::size_t>(a)] == no_target);
}

TEST_CASE("text gets the special tokens that it spells and the template's tokens, unless disabled by an option") {
  const TemporaryFolder folder;
  const tests::SmallTokenizer small;
  const auto tokenizer = folder.path() / "tokenizer.json";
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto write_template = [&](const std::string& single) {
    folder.write("tokenizer.json", small.framed_json(single));
  };
  const std::int32_t begin = 285, end = 286, user = 287;
  folder.write("d/a.jsonl", json_lines({"the<|user|>in", "<s>aa"}));
  folder.write("d/b.txt", "the");
  const auto check = [&](SpecialTokenPolicy policy, const std::vector<Tokens>& parts) {
    Tokens expected;
    for (const Tokens& part : parts) expected.insert(expected.end(), part.begin(), part.end());
    const TextData data = open_text_data({.path = folder.path() / "d",
                                          .tokenizer = tokenizer,
                                          .specials = policy,
                                          .sequence_length = static_cast<int>(expected.size()) - 1,
                                          .vocab_size = 300});
    CHECK(data.tokens == std::ssize(expected));
    CHECK(data.origins.front().first_sample == expected);
  };
  const Tokens the = small.encoded("the"), in = small.encoded("in"), aa = small.encoded("aa");
  write_template("<s> A");
  check(SpecialTokenPolicy::tokenizer, {{begin}, the, {user}, in, {end, begin}, aa, {end, begin}, the});
  const Tokens user_text = small.encoded("the<|user|>in"), begin_text = small.encoded("<s>aa");
  check(SpecialTokenPolicy::text, {{begin}, user_text, {end, begin}, begin_text, {end, begin}, the});
  check(SpecialTokenPolicy::none, {user_text, {end}, begin_text, {end}, the});
  // An end of text in the template is not repeated between documents.
  write_template("<s> A </s>");
  check(SpecialTokenPolicy::tokenizer, {{begin}, the, {user}, in, {end, begin}, aa, {end, begin}, the, {end}});
  write_template("</s> A");
  check(SpecialTokenPolicy::tokenizer, {{end}, the, {user}, in, {end, begin}, aa, {end}, the});
}
