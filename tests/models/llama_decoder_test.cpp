#include "models/generation/decoder.hpp"

#include "models/families/model.hpp"
#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

TEST_CASE("decoders of LLaMA and its kin have the reference's logits at every position, however tokens are read") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [name, options] : family({dtype, dtype})) {
      CAPTURE_ALL(to_string(dtype), name);
      ModelRun run(runtime::make_inline_device({.threads = 2}), options, 1);
      const auto samples = made_up_samples(options, 40, 1);
      const ReferenceParameters parameters = run.reference_parameters();
      std::vector<double> expected;
      ReferenceModel(options, parameters).loss(samples, nullptr, &expected);

      const auto device = device_of(2, dtype == DType::f32);
      Decoder decoder(*device, decoder_model(options), weights_of(run));
      const std::span tokens(samples.tokens);
      const auto check = [&](std::size_t first, std::size_t count) {
        const auto logits = decoder.read(tokens.subspan(first, count));
        REQUIRE(logits.size() == decoder.vocabulary());
        CHECK(logit_error(logits, expected.data() + (first + count - 1) * decoder.vocabulary()) <=
              (dtype == DType::f32 ? 2e-5 : 6e-2));
      };
      for (std::size_t t = 0; t < tokens.size(); ++t) check(t, 1);
      CHECK(decoder.positions() == decoder.context());
      decoder.forget();
      check(0, 4);
      check(4, 1);
      check(5, 2);
    }
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
