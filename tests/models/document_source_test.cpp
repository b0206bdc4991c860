// Samples of one document each, with start and end tokens, and padding.
#include "models/text/document_source.hpp"

#include "models/text/masked_source.hpp"
#include "models/text/text_source.hpp"
#include "tests/models/text_samples.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

struct Fixture {
  TemporaryFolder folder;
  /// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, a 5, b 6, c 7, d 8, e 9.
  std::filesystem::path vocabulary =
      folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\n");

  [[nodiscard]] TextDataOptions options(const std::string& lines, int length) const {
    return {.path = folder.write("lines.jsonl", lines),
            .tokenizer = vocabulary,
            .sequence_length = length,
            .vocab_size = 10,
            .documents = Documents::pad};
  }
};

const std::string lines = json_lines({"a b", "", "c", "a b c d e a b", "d e a"});

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a sample is one document with start and end tokens, then padding; long ones are truncated") {
  const auto data = open_text_data(options(lines, 5));
  const SampleSource& source = *data.training;
  CHECK(source.samples() == 6);
  CHECK(inputs(source, 0, 6) == Tokens{2, 5, 6, 3, 0,  //
                                       2, 7, 3, 0, 0,  //
                                       2, 5, 6, 7, 3,  //
                                       2, 8, 9, 5, 3,  //
                                       2, 6, 3, 0, 0,  //
                                       2, 8, 9, 5, 3});
  CHECK(targets(source, 0, 2) == Tokens{2, 5, 6, 3, no_target, 2, 7, 3, no_target, no_target});
  CHECK(starts(source, 0, 3) == Tokens{0, 0, 0, 0, 4, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0});
  CHECK(documents(source, 1) == Tokens{0, 0, 0, 3, 4, 0, 1, 2, 0, 0, 3, 3, 3, 4, 5});
  CHECK(source.losses(0, 6) == 25);
  CHECK(source.padding(1) == 2);
  CHECK(source.padding(2) == 0);
  CHECK(inputs(source, 7) == inputs(source, 1));  // another epoch
  REQUIRE(data.origins.size() == 1);
  CHECK(data.origins[0].samples == 6);
  REQUIRE(data.origins[0].remarks.size() == 2);
  CHECK(data.origins[0].remarks[0].ends_with("lines.jsonl: skipped rows with an empty field 'text': 1 of 5"));
  CHECK(data.origins[0].remarks[1].ends_with(
      "lines.jsonl: 16.7% of all positions are padding; split at `sequence_length` 5: 1 of 4 documents"));
}

TEST_CASE_FIXTURE(Fixture, "documents of a token file that already have the start and end tokens get no others") {
  auto framed = options(lines, 5);
  framed.path = folder.write("a.bin", shorts({2, 5, 6, 3, 2, 7, 3, 8, 3}));
  framed.reading.format = TokenFormat::uint16;
  CHECK(inputs(*open_text_data(framed).training, 0, 3) == Tokens{2, 5, 6, 3, 0, 2, 7, 3, 0, 0, 2, 8, 3, 0, 0});
}

TEST_CASE_FIXTURE(Fixture,
                  "token files without a tokenizer have samples of single documents, without their end tokens") {
  TextDataOptions plain{.path = folder.write("tokens.bin", shorts({1, 2, 9, 9, 3, 4, 5, 9, 6})),
                        .reading = {.format = TokenFormat::uint16},
                        .sequence_length = 3,
                        .vocab_size = 10,
                        .documents = Documents::pad,
                        .document_end = 9};
  {
    const auto data = open_text_data(plain);
    CHECK(inputs(*data.training, 0, 3) == Tokens{1, 2, 0, 3, 4, 5, 6, 0, 0});
    CHECK(data.origins[0].remarks[0].ends_with("empty documents: 1 of 4"));
  }
  plain.tokenizer = vocabulary;
  const auto data = open_text_data(plain);
  CHECK(inputs(*data.training, 0, 3) == Tokens{2, 1, 3, 2, 2, 3, 2, 3, 3});
  plain.sequence_length = 2;
  CHECK(says(refusal_of(plain), "`sequence_length` 2 is too small"));
  plain.path = folder.write("ends.bin", shorts({9, 9, 9}));
  plain.sequence_length = 3;
  CHECK(says(refusal_of(plain), "all documents are empty"));
}

TEST_CASE_FIXTURE(Fixture,
                  "a fraction of the tokens of padded samples is masked, but no padding, in mixtures too") {
  auto mixed = options(lines, 8);
  const std::string path = mixed.path.string();
  mixed.mixture = {{path, 1}, {path, 1}};
  for (const bool mixes : {true, false}) {
    if (!mixes) mixed.mixture.clear();
    auto data = open_text_data(mixed);
    const MaskedSource masked(std::move(data.training),
                              {.probability = 0.4, .mask_token = 4, .tokens = 10, .seed = 3});
    CHECK(masked.losses_per_sample() == 3);
    CHECK(masked.document_positions() == 8);
    std::int64_t all = 0;
    for (std::int64_t n = 0; n < 40; ++n) {
      const Tokens found = targets(masked, n);
      const auto filled = static_cast<std::ptrdiff_t>(8 - masked.padding(n));
      const auto count = with_loss(found);
      CHECK(count == (filled == 3 ? 1 : filled < 7 ? 2 : 3));
      CHECK(masked.losses(n, 1) == count);
      CHECK(std::count(found.begin() + filled, found.end(), no_target) == 8 - filled);
      const Tokens read = inputs(masked, n);
      CHECK(std::count(read.begin() + filled, read.end(), 0) == 8 - filled);
      CHECK(starts(masked, n)[7] == (filled == 8 ? 0 : 7));
      all += count;
    }
    CHECK(masked.losses(0, 40) == all);
  }
}
