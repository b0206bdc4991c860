#include "models/generation/generator.hpp"

#include "models/core/initialize.hpp"
#include "models/families/model.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

struct Fixture {
  GptOptions options{.layers = 2, .hidden = 32, .heads = 2, .vocab_size = 50, .sequence_length = 12};
  std::unique_ptr<runtime::Device> device = runtime::make_cpu_device({.threads = 2});
  std::unique_ptr<runtime::Device> other = runtime::make_cpu_device({.threads = 1});

  [[nodiscard]] std::unique_ptr<Decoder> decoder(runtime::Device& on) const {
    return std::make_unique<Decoder>(on, decoder_model(options),
                                     [](const UnitSpec& unit, std::size_t begin, std::span<float> out) {
                                       initialize(unit, 5, begin, begin + out.size(), out.data());
                                       for (float& value : out)
                                         value *= 8;  // so that a token's logits depend on the earlier tokens
                                     });
  }

  static std::vector<std::int32_t> text(Decoder& decoder, const SamplingOptions& sampling,
                                        std::vector<std::int32_t> prompt, int count) {
    Generator generator(decoder, sampling, prompt);
    for (int i = 0; i < count; ++i) prompt.push_back(generator.next());
    return prompt;
  }
};

const SamplingOptions greedy{.temperature = 0};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "the most likely text is the same with and without a cache") {
  const auto with = decoder(*device), without = decoder(*other);
  std::vector<std::int32_t> tokens{7, 3};
  const auto expected = text(*with, greedy, tokens, 10);
  while (tokens.size() < expected.size()) {
    without->forget();
    tokens.push_back(sample_token(without->read(tokens), greedy, 0));
  }
  CHECK(tokens == expected);
  CHECK(std::adjacent_find(expected.begin() + 2, expected.end(), std::not_equal_to<>()) != expected.end());
}

TEST_CASE_FIXTURE(Fixture, "a text is the same on any number of threads and on a decoder that was used before") {
  const auto used = decoder(*device);
  const auto expected = text(*used, {}, {1, 2, 3}, 40);
  CHECK(text(*used, {}, {1, 2, 3}, 40) == expected);
  CHECK(text(*used, {.seed = 2}, {1, 2, 3}, 40) != expected);
  for (const int threads : {1, 3}) {
    const auto at_once = runtime::make_inline_device({.threads = threads});
    CHECK(text(*decoder(*at_once), {}, {1, 2, 3}, 40) == expected);
  }
}

TEST_CASE_FIXTURE(Fixture, "after the context is full, a text continues from its last half") {
  const auto decoding = decoder(*device), again = decoder(*other);
  Generator generator(*decoding, greedy, std::vector<std::int32_t>{4});
  std::vector<std::int32_t> tokens{4};
  for (int i = 0; i < 12; ++i) tokens.push_back(generator.next());  // the 13th is not read yet
  CHECK(generator.slides() == 0);
  tokens.push_back(generator.next());
  CHECK(generator.slides() == 1);
  const auto last = std::span(tokens).subspan(tokens.size() - 7, 6);
  CHECK(sample_token(again->read(last), greedy, 0) == tokens.back());
  CHECK(decoding->positions() == 6);
  for (int i = 0; i < 30; ++i) generator.next();
  CHECK(generator.slides() > 3);
}

TEST_CASE_FIXTURE(Fixture, "only the end of a prompt longer than the context is used") {
  const auto decoding = decoder(*device);
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 30; ++i) prompt.push_back(i);
  const auto whole = text(*decoding, greedy, prompt, 5);
  const auto end = text(*decoding, greedy, {prompt.end() - 12, prompt.end()}, 5);
  CHECK(std::equal(whole.end() - 5, whole.end(), end.end() - 5));
}
