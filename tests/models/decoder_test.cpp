#include "models/generation/decoder.hpp"

#include "models/families/model.hpp"
#include "tests/doubles/far_device.hpp"
#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

GptOptions small_options(DType dtype = DType::f32) {
  return {.layers = 2,
          .hidden = 24,
          .heads = 3,
          .vocab_size = 70,
          .sequence_length = 19,
          .precision = {.compute = dtype, .gradient = dtype}};
}

template <typename Options>
struct Case {
  explicit Case(const Options& given, bool at_once = true)
      : options(given),
        run(runtime::make_inline_device({.threads = 2}), options, 1),
        samples(made_up_samples(options, 40, 1)),
        device(device_of(2, at_once)),
        decoder(*device, decoder_model(options), weights_of(run)) {
    const auto parameters = run.reference_parameters();
    ReferenceModel(options, parameters).loss(samples, nullptr, &logits);
  }

  [[nodiscard]] std::span<const std::int32_t> tokens(std::size_t first, std::size_t count) const {
    return std::span(samples.tokens).subspan(first, count);
  }
  /// Checks the logits after this token.
  void check(std::span<const float> found, std::size_t position) const {
    const DType dtype = options.precision.compute;
    REQUIRE(found.size() == decoder.vocabulary());
    CHECK(logit_error(found, logits.data() + position * found.size()) <= (dtype == DType::f32   ? 2e-5
                                                                          : dtype == DType::f16 ? 1e-2
                                                                                                : 6e-2));
  }
  /// Reads a text from its start, in parts of these lengths.
  void check_read(const std::vector<std::size_t>& parts) {
    decoder.forget();
    std::size_t end = 0;
    for (const std::size_t count : parts) {
      const auto found = decoder.read(tokens(end, count));
      end += count;
      check(found, end - 1);
    }
    CHECK(decoder.positions() == static_cast<int>(end));
  }

  Options options;
  ModelRun run;
  ReferenceSamples samples;
  std::unique_ptr<runtime::Device> device;
  Decoder decoder;
  std::vector<double> logits;  ///< [T, V], from the reference
};

}  // namespace

TEST_CASE("a decoder has the logits of the reference at every position, for any numbers of tokens read at once") {
  using Parts = std::vector<std::size_t>;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool at_once : {true, false}) {
      if (repeats(2, at_once)) continue;
      CAPTURE(to_string(dtype));
      Case c(small_options(dtype), at_once);
      c.check_read(Parts(19, 1));
      CHECK(c.decoder.positions() == c.decoder.context());
      for (std::size_t length = 1; length <= 19; ++length) c.check_read({length});
      for (const Parts& parts : {Parts{4, 1, 7, 2}, {1, 5, 5}, {6, 13}, {1, 1, 17}}) c.check_read(parts);
    }
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [name, options] : family({dtype, dtype})) {
      CAPTURE_ALL(to_string(dtype), name);
      Case c(options, dtype == DType::f32);
      c.check_read(Parts(7, 1));
      CHECK(c.decoder.positions() == c.decoder.context());
      c.check_read({4, 1, 2});
    }
}

TEST_CASE("a decoder's logits have the same bits on any number of threads") {
  Case c(small_options());
  std::vector<std::vector<float>> expected;
  for (const int threads : {1, 2, 5}) {
    const auto device = runtime::make_cpu_device({.threads = threads});
    Decoder decoder(*device, decoder_model(c.options), weights_of(c.run));
    std::vector<std::vector<float>> all;
    for (const auto tokens : {c.tokens(0, 9), c.tokens(9, 1), c.tokens(10, 4), c.tokens(14, 1)}) {
      const auto logits = decoder.read(tokens);
      all.emplace_back(logits.begin(), logits.end());
    }
    if (expected.empty()) expected = all;
    CHECK(all == expected);
  }
}

TEST_CASE("a decoder loads weights into memory inaccessible to the host, and reads logits from there") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c(small_options(dtype));
    tests::FarDevice far(runtime::make_inline_device({.threads = 2}));
    Decoder decoder(far, decoder_model(c.options), weights_of(c.run));
    c.check(decoder.read(c.tokens(0, 5)), 4);
    const auto logits = decoder.read(c.tokens(5, 1));
    CHECK(far.host_reaches(logits.data()));
    c.check(logits, 5);
  }
}

TEST_CASE("a decoder refuses invalid tokens and positions beyond its context") {
  for (const bool at_once : {true, false}) {
    Case c(small_options(), at_once);
    CHECK_THROWS_AS(c.decoder.read({}), Error);
    c.decoder.read(c.tokens(0, 18));
    CHECK_THROWS_AS(c.decoder.read(c.tokens(0, 2)), Error);
    const std::int32_t unknown = 70;
    CHECK_THROWS_WITH_AS(c.decoder.read({&unknown, 1}), doctest::Contains("outside the vocabulary"), Error);
  }
}

TEST_CASE("a decoder of shared key heads stores only those, and counts the bytes that a token reads") {
  LlamaOptions options = small_llama();
  options.heads = 6;
  options.key_heads = 2;
  options.head_size = 4;
  const auto zeros = [](const UnitSpec&, std::size_t, std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
  };
  const auto device = device_of(1, true), other = device_of(1, true);
  const Decoder decoder(*device, decoder_model(options), zeros);
  CHECK(decoder.cache_bytes_per_position() == 2 * 2 * 2 * 4 * sizeof(float));
  const std::size_t table = 13 * 12 * sizeof(float);
  CHECK(decoder.weight_bytes() == make_llama(options).parameters() * sizeof(float) - table);
  options.tied = true;
  CHECK(Decoder(*other, decoder_model(options), zeros).weight_bytes() == decoder.weight_bytes());
}
