#include "models/generation/sampler.hpp"

#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

constexpr int draws = 20000;

/// Relative frequency of each token.
std::map<std::int32_t, double> shares(const std::vector<float>& logits, const SamplingOptions& options) {
  std::map<std::int32_t, double> result;
  for (int n = 0; n < draws; ++n)
    result[sample_token(logits, options, static_cast<std::uint64_t>(n))] += 1.0 / draws;
  return result;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

const SamplingOptions plain{.temperature = 1, .top_k = 0, .top_p = 1, .seed = 3};

}  // namespace

TEST_CASE("tokens are drawn with their probabilities") {
  const std::vector<double> probabilities{0.1, 0.4, 0.05, 0.25, 0.2};
  const auto drawn = shares(logits_of(probabilities), plain);
  for (std::size_t i = 0; i < probabilities.size(); ++i)
    CHECK(drawn.at(static_cast<std::int32_t>(i)) == doctest::Approx(probabilities[i]).epsilon(0.06));
}

TEST_CASE("a low temperature sharpens and a high one flattens") {
  const auto logits = logits_of({0.8, 0.2});
  SamplingOptions options = plain;
  options.temperature = 0.5;  // squares the ratio: 16 to 1
  CHECK(shares(logits, options)[1] == doctest::Approx(1.0 / 17).epsilon(0.08));
  options.temperature = 2;  // its root: 2 to 1
  CHECK(shares(logits, options)[1] == doctest::Approx(1.0 / 3).epsilon(0.05));
}

TEST_CASE("temperature 0 takes the most likely token, and the lowest of equal ones") {
  SamplingOptions options = plain;
  options.temperature = 0;
  for (std::uint64_t n = 0; n < 50; ++n) CHECK(sample_token(std::vector<float>{1, 3, 2, 3}, options, n) == 1);
}

TEST_CASE("top-k draws among the k most likely tokens, in their proportions") {
  SamplingOptions options = plain;
  options.top_k = 2;
  auto drawn = shares(logits_of({0.1, 0.4, 0.05, 0.2, 0.25}), options);
  CHECK(drawn.size() == 2);
  CHECK(drawn[1] == doctest::Approx(0.4 / 0.65).epsilon(0.05));
  CHECK(drawn[4] == doctest::Approx(0.25 / 0.65).epsilon(0.05));
  options.top_k = 1;
  CHECK(shares(logits_of({0.4, 0.4, 0.2}), options).count(0) == 1);
}

TEST_CASE("top-p draws among the fewest of the most likely tokens that reach it") {
  SamplingOptions options = plain;
  options.top_p = 0.6;
  const auto logits = logits_of({0.1, 0.4, 0.05, 0.2, 0.25});
  auto drawn = shares(logits, options);
  CHECK(drawn.size() == 2);
  CHECK(drawn[1] == doctest::Approx(0.4 / 0.65).epsilon(0.05));
  options.top_p = 0.3;
  CHECK(shares(logits, options).size() == 1);
  options.top_p = 0.999;
  CHECK(shares(logits, options).size() == 5);
  options.top_p = 1e-9;
  CHECK(shares(logits, options).count(1) == 1);
}

TEST_CASE("top-p applies to the result of top-k") {
  SamplingOptions options = plain;
  options.top_k = 3;  // 0.4, 0.25, 0.2: shares 0.47, 0.29, 0.24
  options.top_p = 0.7;
  CHECK(shares(logits_of({0.1, 0.4, 0.05, 0.2, 0.25}), options).size() == 2);
}

TEST_CASE("a draw depends only on seed, text and number") {
  const std::vector<float> logits(1000, 0.0f);
  SamplingOptions options = plain;
  const auto tokens = [&] {
    std::vector<std::int32_t> drawn;
    for (std::uint64_t n = 0; n < 20; ++n) drawn.push_back(sample_token(logits, options, n));
    return drawn;
  };
  const auto first = tokens();
  for (std::uint64_t n = 20; n-- > 0;) CHECK(sample_token(logits, options, n) == first[n]);
  options.seed = 4;
  const auto other_seed = tokens();
  CHECK(first != other_seed);
  options.text = 1;
  CHECK(tokens() != other_seed);
}

TEST_CASE("tokens beyond the vocabulary are not drawn, however likely they are") {
  SamplingOptions options = plain;
  options.tokens = 2;
  const auto drawn = shares(logits_of({0.1, 0.3, 0.6}), options);
  CHECK(drawn.size() == 2);
  CHECK(drawn.at(1) == doctest::Approx(0.75).epsilon(0.03));
  options.temperature = 0;
  CHECK(sample_token(logits_of({0.1, 0.3, 0.6}), options, 0) == 1);
  options.tokens = 5;  // more than the model's vocabulary
  CHECK(sample_token(logits_of({0.1, 0.3, 0.6}), options, 0) == 2);
}

TEST_CASE("impossible tokens are never drawn, and infinitely likely ones always") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(shares({-infinity, 0, -infinity}, plain).size() == 1);
  CHECK(shares({0, infinity, 5}, plain).count(1) == 1);
  CHECK(shares({0, infinity, 5}, plain).size() == 1);
}

TEST_CASE("NaN logits are an error") {
  CHECK_THROWS_WITH_AS(static_cast<void>(sample_token(std::vector<float>{0, std::nanf("")}, plain, 0)),
                       doctest::Contains("not a number"), Error);
}
