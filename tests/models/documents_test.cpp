// Several documents in one sample, in complete models: each is computed as if it were alone.
#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

/// Two samples, of documents of 3 and 4 positions, and of 1, 4 and 2.
template <typename Options>
ReferenceSamples packed_samples(const Options& options) {
  ReferenceSamples samples = made_up_samples(options, 40, 2);
  samples.documents = {0, 0, 0, 3, 3, 3, 3, 0, 1, 1, 1, 1, 5, 5};
  for (int i = 0; i < 14; ++i) samples.documents.push_back(i % 7 - samples.documents[static_cast<std::size_t>(i)]);
  for (const std::int32_t end : {3, 3, 3, 7, 7, 7, 7, 1, 5, 5, 5, 5, 7, 7}) samples.documents.push_back(end);
  return samples;
}

/// BERTs without dropout, whose values do not depend on a document's offset in its sample.
Family<BertOptions> berts() {
  auto berts = bert_family();
  std::erase_if(berts, [](const auto& bert) { return bert.second.dropout > 0; });
  return berts;
}

/// The same documents, as separate samples.
std::vector<ReferenceSamples> documents_of(const ReferenceSamples& packed) {
  std::vector<ReferenceSamples> documents;
  const std::size_t rows = packed.tokens.size();
  for (std::size_t i = 0; i < rows; ++i) {
    if (packed.documents[rows + i] == 0) documents.push_back({.samples = 1, .key = packed.key});
    documents.back().tokens.push_back(packed.tokens[i]);
    documents.back().targets.push_back(packed.targets[i]);
    ++documents.back().positions;
  }
  return documents;
}

/// The sum of what the reference makes of each document alone.
template <typename Options>
struct ByDocument {
  ByDocument(const Options& given, const ReferenceParameters& values) : options(given), parameters(values) {}

  [[nodiscard]] double loss(const ReferenceSamples& packed) const {
    double sum = 0;
    for (const ReferenceSamples& document : documents_of(packed)) {
      Options alone = options;
      alone.sequence_length = document.positions;
      sum += ReferenceModel(alone, parameters).loss(document);
    }
    return sum;
  }

  Options options;
  const ReferenceParameters& parameters;
};

template <typename Options>
void check_packed(const Options& options, std::size_t stride) {
  const ReferenceSamples packed = packed_samples(options);
  const double factor = 1.0 / 20;
  ModelRun run(device_of(2, true), options, 2);
  const double loss = run.forward(packed, factor);
  run.backward(false);

  ReferenceParameters parameters = run.reference_parameters();
  const ByDocument exact(options, parameters);
  CHECK(loss == doctest::Approx(exact.loss(packed) * factor).epsilon(allowed(1e-6)));
  const auto gradients = run.gradients_by_name();
  check_slopes(exact, options, gradients, parameters, packed, factor, {.stride = stride, .skips = is_rounding});
  check_parts(options, packed, documents_of(packed));
}

}  // namespace

TEST_CASE("documents in one sample have the losses and gradients that each has alone") {
  const std::size_t sparse = stride_of(7, 151);
  for (const GptOptions& options : {small_gpt(), in_tiles(small_gpt(), 2)}) {
    CAPTURE(options.tile);
    check_packed(options, sparse);
  }
  for (const auto& [name, options] : family()) {
    CAPTURE(name);
    check_packed(options, sparse);
  }
  for (const auto& [name, options] : berts()) {
    CAPTURE(name);
    check_packed(options, sparse);
  }
}

TEST_CASE("the contents of neighboring documents do not change any bit of a document") {
  const auto check = [](const auto& options) {
    ReferenceSamples samples = packed_samples(options);
    ModelRun run(device_of(2, true), options, 2);
    const std::size_t block = 2;  // output of the last block
    run.forward(samples, 1);
    const TypedArray before = run.output(block);
    for (const std::size_t i : {3, 4, 5, 6, 7})  // the second document of one sample and the first of the other
      samples.tokens[i] = (samples.tokens[i] + 1) % options.vocab_size;
    run.forward(samples, 1);
    const TypedArray after = run.output(block);
    const std::size_t row = before.bytes() / samples.tokens.size();
    for (std::size_t i = 0; i < samples.tokens.size(); ++i) {
      CAPTURE(i);
      const bool same = std::memcmp(before.data() + i * row, after.data() + i * row, row) == 0;
      CHECK(same == (i < 3 || i > 7));
    }
  };
  check(small_gpt());
  check(family().front().second);
  check(berts().front().second);
}
