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

struct Case {
  explicit Case(DType dtype, bool at_once = true)
      : options(small_options(dtype)), run(runtime::make_inline_device({.threads = 2}), options, 1) {
    samples = made_up_samples(options, 40, 1);
    const auto parameters = run.reference_parameters();
    ReferenceModel(options, parameters).loss(samples, nullptr, &logits);
    device = on_gpu_here() ? tests::make_device()
             : at_once     ? runtime::make_inline_device({.threads = 2})
                           : runtime::make_cpu_device({.threads = 2});
    decoder.emplace(*device, decoder_model(options), weights_of(run));
    tolerance = dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 1e-2 : 6e-2;
  }

  [[nodiscard]] std::span<const std::int32_t> tokens(std::size_t first, std::size_t count) const {
    return std::span(samples.tokens).subspan(first, count);
  }
  [[nodiscard]] const double* expected(std::size_t position) const {
    return logits.data() + position * static_cast<std::size_t>(options.vocab_size);
  }

  GptOptions options;
  ModelRun run;
  ReferenceSamples samples;
  std::vector<double> logits;  ///< [T, V], from the reference
  std::unique_ptr<runtime::Device> device;
  std::optional<Decoder> decoder;
  double tolerance = 0;
};

}  // namespace

TEST_CASE("a decoder that reads token by token has the logits of the reference at every position") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool at_once : {true, false}) {
      Case c(dtype, at_once);
      double error = 0;
      for (std::size_t t = 0; t < c.samples.tokens.size(); ++t)
        error = worse(error, logit_error(c.decoder->read(c.tokens(t, 1)), c.expected(t)));
      CAPTURE(to_string(dtype));
      CHECK(error <= c.tolerance);
      CHECK(c.decoder->positions() == c.decoder->context());
    }
}

TEST_CASE("a decoder that reads many tokens at once has the same logits as one that reads them one by one") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c(dtype);
    double error = 0;
    for (std::size_t length = 1; length <= c.samples.tokens.size(); ++length) {
      c.decoder->forget();
      error = worse(error, logit_error(c.decoder->read(c.tokens(0, length)), c.expected(length - 1)));
    }
    for (const std::vector<std::size_t>& parts :
         {std::vector<std::size_t>{4, 1, 7, 2}, {1, 5, 5}, {6, 13}, {1, 1, 17}}) {
      c.decoder->forget();
      std::size_t first = 0;
      for (const std::size_t count : parts) {
        error = worse(error, logit_error(c.decoder->read(c.tokens(first, count)), c.expected(first + count - 1)));
        first += count;
      }
    }
    CAPTURE(to_string(dtype));
    CHECK(error <= c.tolerance);
  }
}

TEST_CASE("a decoder's logits have the loss of the training model's forward pass") {
  Case c(DType::f32);
  double loss = 0;
  for (std::size_t t = 0; t < c.samples.tokens.size(); ++t) {
    const auto logits = c.decoder->read(c.tokens(t, 1));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    loss += std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(c.samples.targets[t])]);
  }
  CHECK(c.run.forward(c.samples, 1.0, 1, false) == doctest::Approx(loss).epsilon(1e-5));
}

TEST_CASE("a decoder's logits have the same bits on any number of threads") {
  Case c(DType::f32);
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
    Case c(dtype);
    tests::FarDevice far(runtime::make_inline_device({.threads = 2}));
    Decoder decoder(far, decoder_model(c.options), weights_of(c.run));
    CHECK(logit_error(decoder.read(c.tokens(0, 5)), c.expected(4)) <= c.tolerance);
    const auto logits = decoder.read(c.tokens(5, 1));
    CHECK(far.host_reaches(logits.data()));
    CHECK(logit_error(logits, c.expected(5)) <= c.tolerance);
  }
}

TEST_CASE("a decoder refuses invalid tokens and positions beyond its context") {
  for (const bool at_once : {true, false}) {
    Case c(DType::f32, at_once);
    CHECK_THROWS_AS(c.decoder->read({}), Error);
    c.decoder->read(c.tokens(0, 18));
    CHECK_THROWS_AS(c.decoder->read(c.tokens(0, 2)), Error);
    const std::int32_t unknown = 70;
    CHECK_THROWS_WITH_AS(c.decoder->read({&unknown, 1}), doctest::Contains("outside the vocabulary"), Error);
  }
}
