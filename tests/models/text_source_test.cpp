#include "models/text/text_source.hpp"

#include "models/text/bytes_per_token.hpp"
#include "models/text/mixed_source.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "tests/models/compressed.hpp"
#include "tests/models/sentencepiece_writer.hpp"
#include "tests/models/small_tokenizer.hpp"
#include "tests/models/text_samples.hpp"
#include "tests/test.hpp"

#include <fmt/core.h>

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

/// A text whose byte at offset i is i.
std::string counting(int length) {
  std::string text;
  for (int i = 0; i < length; ++i) text.push_back(static_cast<char>(i));
  return text;
}

TextSource source_of(const std::filesystem::path& path, const TextSourceOptions& options) {
  return {std::make_shared<const TokenSequence>(path, TextReading{.format = TokenFormat::text}), options};
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "in file order sample n has tokens n·T to n·T+T, wrapping at the end") {
  const auto source = source_of(folder.write("a", counting(10)), {.range = {0, 10}, .sequence_length = 4});
  CHECK(source.samples() == 2);
  CHECK(source.input_bytes() == 16);
  CHECK(source.losses_per_sample() == 4);
  CHECK(inputs(source, 0, 2) == Tokens{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(targets(source, 0, 2) == Tokens{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(inputs(source, 2, 1) == Tokens{8, 9, 0, 1});
  CHECK(targets(source, 2, 1) == Tokens{9, 0, 1, 2});
  CHECK(inputs(source, 1'000'000'000'003, 1) == Tokens{2, 3, 4, 5});
}

TEST_CASE_FIXTURE(InFolder, "a window longer than the rest of a short range wraps as often as needed") {
  const auto source = source_of(folder.write("a", counting(20)), {.range = {5, 10}, .sequence_length = 4});
  CHECK(source.samples() == 1);
  CHECK(inputs(source, 0, 3) == Tokens{5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6});
  CHECK(targets(source, 1, 1) == Tokens{5, 6, 7, 8});
}

TEST_CASE_FIXTURE(InFolder, "a range too short for a sequence is refused") {
  const auto path = folder.write("short.txt", counting(8));
  CHECK(source_of(path, {.range = {0, 8}, .sequence_length = 7}).samples() == 1);
  const auto error = error_of([&] { source_of(path, {.range = {0, 8}, .sequence_length = 8}); });
  CHECK(says(error, ErrorCode::data, "short.txt: 8 tokens are too few for `sequence_length` 8, which needs 9"));
}

TEST_CASE_FIXTURE(
    InFolder,
    "for any kind of data the last samples are kept for validation, and epochs have each other one once") {
  std::string labelled, prompts, documents;
  for (std::size_t n = 0; n < 40; ++n) {
    labelled += fmt::format("{{\"text\": \"{}\", \"kind\": {}}}\n", n, n % 3);
    prompts += fmt::format("{{\"q\": \"{}\", \"a\": \"{:x<{}}\"}}\n", n, "", 1 + n % 7);
    documents += json_lines({std::string("a b c d e a b c d").substr(n % 8)});
  }
  const TextDataOptions kinds[] = {
      {.path = folder.write("text", counting(100)), .sequence_length = 4},
      {.path = folder.write("labelled.jsonl", labelled),
       .reading = {.label_field = "kind"},
       .labels = {"a", "b", "c"},
       .sequence_length = 6,
       .documents = Documents::pad},
      {.path = folder.write("prompts.jsonl", prompts),
       .reading = {.json_field = "a", .prompt_field = "q"},
       .sequence_length = 12},
      {.path = folder.write("documents.jsonl", documents),
       .tokenizer = folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\n"),
       .sequence_length = 6,
       .documents = Documents::pad}};
  for (TextDataOptions options : kinds) {
    CAPTURE(options.path.filename().string());
    const auto whole = open_text_data(options);
    options.validation_split = 0.2;
    options.shuffle_seed = 5;
    const auto split = open_text_data(options);
    const auto all = static_cast<int>(whole.training->samples()),
               kept = static_cast<int>(split.validation->samples()),
               rest = static_cast<int>(split.training->samples());
    CHECK(kept == all / 5);
    CHECK(rest >= all - kept - 1);  // without the sample of a text whose last target is kept
    CHECK(inputs(*split.validation, 0, kept) == inputs(*whole.training, all - kept, kept));
    CHECK(targets(*split.validation, 0, kept) == targets(*whole.training, all - kept, kept));

    const auto samples_of = [&](const SampleSource& source, int first) {
      std::vector<std::pair<Tokens, Tokens>> samples;
      for (int n = first; n < first + rest; ++n) samples.emplace_back(inputs(source, n), targets(source, n));
      return samples;
    };
    auto expected = samples_of(*whole.training, 0), before = expected;
    std::sort(expected.begin(), expected.end());
    for (const int epoch : {0, 1, 7}) {
      auto found = samples_of(*split.training, epoch * rest);
      CHECK(found != std::exchange(before, found));
      std::sort(found.begin(), found.end());
      CHECK(found == expected);
    }
    Tokens one_by_one;
    for (int n = 3; n < 3 + rest; ++n)
      for (const auto token : inputs(*split.training, n)) one_by_one.push_back(token);
    CHECK(inputs(*split.training, 3, rest) == one_by_one);
    CHECK(split.training->losses(3, rest) == with_loss(targets(*split.training, 3, rest)));

    options.validation_split = 0.001;
    CHECK(says(refusal_of(options), "`validation_split` 0.001"));
    options.validation_split = 0;
    options.validates_all = true;
    const auto both = open_text_data(options);
    CHECK(both.training->samples() == all);
    CHECK(inputs(*both.validation, 0, all) == inputs(*whole.training, 0, all));
  }
}

TEST_CASE("data that cannot be split, or whose tokens do not fit the model, are refused when they are opened") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.txt", counting(100));
  CHECK(says(refusal_of({.path = path, .sequence_length = 30, .validation_split = 0.2}), "`validation_split` 0.2"));
  CHECK(says(refusal_of({.path = path, .vocab_size = 99}), "token 99 at offset 99"));
  CHECK(says(refusal_of({.path = path, .text_allowed = false}), "`tokenizer` bytes"));
  CHECK(open_text_data({.path = path, .vocab_size = 100}).training->samples() == 99);
}

TEST_CASE_FIXTURE(InFolder, "each of several files has its share of every round, with consecutive samples") {
  const auto a = folder.write("a", std::string(401, 'a')), b = folder.write("b", std::string(41, 'b')),
             c = folder.write("c", std::string(5, 'c'));
  for (const bool shuffled : {false, true}) {
    const auto make = [&] {
      std::vector<WeightedSource> sources;
      for (const auto& [path, weight] : {std::pair{a, 5.0}, {b, 3.0}, {c, 0.25}}) {
        const auto tokens = std::make_shared<const TokenSequence>(path, TextReading{.format = TokenFormat::text});
        sources.push_back({std::make_unique<TextSource>(
                               tokens, TextSourceOptions{.range = {0, tokens->tokens()}, .sequence_length = 4}),
                           weight});
      }
      return MixedSource(std::move(sources), shuffled ? std::optional<std::uint64_t>(3) : std::nullopt);
    };
    const MixedSource mixed = make(), again = make();
    CHECK(mixed.samples() == 100 + 10 + 1);
    constexpr std::int64_t round = 1 << 16;
    std::vector<std::int64_t> given(3);
    for (std::int64_t n = 0; n < 2 * round; ++n) {
      const auto origin = mixed.origin(n);
      REQUIRE(origin.sample == given[origin.source]++);
      REQUIRE(again.origin(n).source == origin.source);
      if (n % 997 == 0) CHECK(inputs(mixed, n, 1) == Tokens(4, static_cast<std::int32_t>('a' + origin.source)));
      if (shuffled || n % round != 999) continue;
      CHECK(std::abs(given[0] - (n / round * 39719 + 606)) <= 1);
      CHECK(std::abs(given[1] - (n / round * 23831 + 364)) <= 1);
    }
    CHECK(given[0] == 2 * 39719);  // 5 / 8.25 of 65536
    CHECK(given[1] == 2 * 23831);
    CHECK(given[2] == 2 * 1986);
    CHECK(inputs(mixed, 70'000, 20).size() == 80);
  }
}

TEST_CASE("weights are read from the words of `data`, and what makes no sense of them is refused") {
  const auto paths = parse_weighted_paths("a.bin:0.7,/b:c.bin:3");
  REQUIRE(paths.size() == 2);
  CHECK(paths[0].path == "a.bin");
  CHECK(paths[0].weight == 0.7);
  CHECK(paths[1].path == "/b:c.bin");
  CHECK(paths[1].weight == 3);
  CHECK(parse_weighted_paths("one, and:two.txt").front().path == "one, and:two.txt");
  CHECK(parse_weighted_paths("").front().path.empty());
  const auto refused = [](const char* text) {
    return error_of([&] { static_cast<void>(parse_weighted_paths(text)); });
  };
  CHECK(says(refused("a:1,b"), "some files have no weight"));
  CHECK(says(refused("a:0,b:1"), "weight 0 of a is not positive"));
  CHECK(says(refused("a:1,:1"), "a weight has no file"));
  CHECK(says(refused("a.bin:1e400,b.bin:0.3"), "weight 1e400 of a.bin is out of range"));
  CHECK(says(refused("a.bin:1e-400,b.bin:0.3"), "weight 1e-400 of a.bin is out of range"));
  const TemporaryFolder folder;
  const auto path = folder.write("a", counting(100)).string();
  CHECK(says(refused((path + ",b").c_str()), "add a weight to each: " + path + ":1,b:1"));
  CHECK(parse_weighted_paths(folder.write("a,b", "").string()).size() == 1);
  const auto tiny = refusal_of({.mixture = {{path, 1}, {path, 1e-9}}, .sequence_length = 4});
  CHECK(says(tiny, ErrorCode::usage, "less than one of 65536 samples"));
}

TEST_CASE_FIXTURE(InFolder, "the end of each file of a mixture is kept for validation") {
  const auto a = folder.write("a", counting(100)).string(), b = folder.write("b", counting(50)).string();
  const auto data = open_text_data(
      {.mixture = {{a, 1}, {b, 1}}, .sequence_length = 4, .shuffle_seed = 1, .validation_split = 0.2});
  CHECK(data.tokens == 150);
  REQUIRE(data.validation);
  CHECK(inputs(*data.validation, 0, 3) == Tokens{80, 81, 82, 83, 40, 41, 42, 43, 84, 85, 86, 87});
  for (const auto token : targets(*data.training, 0, 200)) CHECK(token < 80);
}

TEST_CASE("each of JSON lines is a document: with the end of text between them, or as bytes with newlines") {
  const TemporaryFolder folder;
  const tests::SmallTokenizer small;
  const auto tokenizer = folder.write("tokenizer.json", small.tokenizer_json());
  const std::string lines = json_lines({"the world", "in\\nthe end"});
  folder.write("texts/a.jsonl.gz", tests::gzipped(lines));
  folder.write("texts/b.txt.zst", tests::zstd_packed("aaaa\xff"));
  folder.write("texts/c.png", "\x89PNG\r\n");
  Tokens expected;
  for (const char* document : {"the world", "in\nthe end", "aaaa\xff"}) {
    if (!expected.empty()) expected.push_back(small.end_of_text());
    for (const auto token : small.encoded(document)) expected.push_back(token);
  }
  const auto length = static_cast<int>(expected.size()) - 1;
  const auto texts = folder.path() / "texts";
  TextDataOptions options{
      .path = texts, .tokenizer = tokenizer, .threads = 2, .sequence_length = length, .vocab_size = 300};
  const auto encoded = open_text_data(options);
  CHECK(inputs(*encoded.training, 0, 1) == Tokens(expected.begin(), expected.end() - 1));
  CHECK(targets(*encoded.training, 0, 1) == Tokens(expected.begin() + 1, expected.end()));
  REQUIRE(encoded.origins.size() == 1);
  CHECK(encoded.origins[0].files == 2);
  CHECK(encoded.origins[0].documents == 3);
  CHECK(encoded.origins[0].tokens == length + 1);
  CHECK(encoded.origins[0].left_out.size() == 1);
  CHECK(encoded.files ==
        std::vector<std::filesystem::path>{folder.path() / "texts/a.jsonl.gz", folder.path() / "texts/b.txt.zst"});

  options.vocab_size = small.end_of_text();
  CHECK(says(refusal_of(options), "is outside `vocab_size`"));

  const std::string bytes = "the world\nin\nthe end\naaaa\xff";
  const auto plain = open_text_data({.path = texts, .sequence_length = static_cast<int>(bytes.size()) - 1});
  CHECK(inputs(*plain.training, 0, 1) == Tokens(bytes.begin(), bytes.end() - 1));
  CHECK(plain.origins[0].documents == 3);
  const auto field =
      refusal_of({.path = folder.path() / "texts", .reading = {.json_field = "body"}, .sequence_length = 4});
  CHECK(says(field, "a.jsonl.gz: line 1: field 'body' is missing, found 'text'"));
}

// This amount of text takes half a minute with a sanitizer.
TEST_CASE("compressed text beyond the memory limit of a rank is refused before it is completely read" *
          doctest::skip(test::sanitized)) {
  const TemporaryFolder folder;
  // 300 MiB: members of a gzip file may follow each other.
  const std::string member = tests::gzipped(std::string(std::size_t{25} << 20, 'x'));
  std::string bomb;
  for (int i = 0; i < 12; ++i) bomb += member;
  const auto path = folder.write("bomb.txt.gz", bomb);
  const auto error = refusal_of({.path = path, .sequence_length = 4});
  CHECK(says(error, ErrorCode::data,
             "bomb.txt.gz: text for a tokenizer, compressed or in JSON lines exceeds 268435456 bytes",
             "ranvier-tokenize"));
}

TEST_CASE("invalid UTF-8 bytes are reported with their number and first offset, compressed or not") {
  const TemporaryFolder folder;
  const std::string text = std::string(100, 'a') + "\xe4" + std::string(100, 'b') + "\xf6";
  for (const auto& path : {folder.write("a.txt", text), folder.write("a.txt.gz", tests::gzipped(text))}) {
    const auto data = open_text_data({.path = path, .sequence_length = 4});
    REQUIRE(data.origins[0].remarks.size() == 1);
    CHECK(data.origins[0].remarks[0] ==
          path.string() + ": 2 of the 202 bytes examined are not UTF-8, the first at offset 100");
  }
  CHECK(open_text_data({.path = folder.write("b.txt", "good text"), .sequence_length = 4})
            .origins[0]
            .remarks.empty());
}

TEST_CASE("bytes per token are computed from the validated tokens, and an end of text has no byte") {
  const TemporaryFolder folder;
  const tests::SmallTokenizer small;
  const auto path = folder.write("tokenizer.json", small.tokenizer_json());
  const Tokenizer tokenizer = read_tokenizer(path);
  const std::string english = json_lines(std::vector<std::string>(100, "a b c")),
                    chinese = json_lines(std::vector<std::string>(100, "中中中中"));
  REQUIRE(small.encoded("a b c").size() == 5);
  REQUIRE(small.encoded("中中中中", {{U'中', 'l'}}).size() == 4);
  const auto of = [&](const std::string& text, double split, bool all) {
    const auto data = open_text_data({.path = folder.write("a.jsonl", text),
                                      .tokenizer = path,
                                      .sequence_length = 5,
                                      .vocab_size = 300,
                                      .validation_split = split,
                                      .validates_all = all});
    return bytes_per_token(tokenizer, *data.validation, data.validation->samples());
  };
  // One of five targets is an end of text, and for English one of six.
  CHECK(of(english + chinese, 0.4, false) == doctest::Approx(12.0 / 5));
  CHECK(of(english, 0, true) == doctest::Approx(5.0 / 6).epsilon(0.01));
  // A space that the tokenizer adds before texts does not count.
  tests::SentencePieceWriter writer;
  writer.add("<unk>", 0, 2).add("<s>", 0, 3).add("</s>", 0, 3).add("▁a", -1).add("a", -2).add("▁", -3);
  const Tokenizer pieces = read_tokenizer(folder.write("tokenizer.model", writer.model()));
  const auto data = open_text_data({.path = folder.write("b.jsonl", json_lines({"aaa", "a a"})),
                                    .tokenizer = folder.path() / "tokenizer.model",
                                    .specials = SpecialTokenPolicy::none,
                                    .sequence_length = 5,
                                    .vocab_size = 300,
                                    .validates_all = true});
  CHECK(data.tokens == 6);  // ▁a a a </s> ▁a ▁a
  CHECK(bytes_per_token(pieces, *data.validation, 1) == doctest::Approx(5.0 / 5));
}
