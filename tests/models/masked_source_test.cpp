#include "models/text/masked_source.hpp"
#include "tests/models/text_samples.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

constexpr int length = 40;
constexpr std::int32_t mask = 100, separator = 7;

/// Sample n has tokens n, n + 1, … modulo 97; its targets are unused.
class Counting final : public TokenSamples {
 public:
  Counting() : TokenSamples(length) {}
  std::int64_t samples() const override { return 1000; }
  void read_input(std::int64_t n, std::byte* to) const override {
    auto* const tokens = reinterpret_cast<std::int32_t*>(to);
    for (int t = 0; t < length; ++t) tokens[t] = static_cast<std::int32_t>((n + t) % 97);
  }
  void read_target(std::int64_t, std::byte*) const override { FAIL("targets are the tokens themselves"); }
};

MaskedSource masked(MaskingOptions options = {}) {
  options.mask_token = mask;
  options.tokens = mask;
  if (options.seed == 0) options.seed = 5;
  return MaskedSource(std::make_unique<Counting>(), std::move(options));
}

}  // namespace

TEST_CASE("exactly the same fraction of each sample is chosen, and is masked, replaced or kept as 80/10/10") {
  const MaskedSource source = masked();
  const Counting plain;
  CHECK(source.losses_per_sample() == 6);
  constexpr int samples = 2000;
  const Tokens before = inputs(plain, 0, samples), after = inputs(source, 0, samples),
               found = targets(source, 0, samples);
  std::vector<double> of_position(length);
  std::map<std::int32_t, int> drawn;
  double masks = 0, others = 0, same = 0;
  for (int n = 0; n < samples; ++n) {
    int chosen = 0;
    for (int t = 0; t < length; ++t) {
      const auto i = static_cast<std::size_t>(n * length + t);
      if (found[i] == no_target) {
        CHECK(after[i] == before[i]);
        continue;
      }
      ++chosen;
      ++of_position[static_cast<std::size_t>(t)];
      CHECK(found[i] == before[i]);
      if (after[i] == mask) {
        ++masks;
      } else if (after[i] == before[i]) {
        ++same;
      } else {
        ++others;
        ++drawn[after[i]];
      }
    }
    CHECK(chosen == 6);
  }
  // Within four standard deviations; one token in 100 is the same by chance.
  const double all = samples * 6;
  const auto near = [all](double count, double share) {
    return std::abs(count - share * all) < 4 * std::sqrt(share * (1 - share) * all);
  };
  CHECK(near(masks, 0.8));
  CHECK(near(others, 0.1 * 0.99));
  CHECK(near(same, 0.1 + 0.1 * 0.01));
  for (const double count : of_position) CHECK(near(count, 1.0 / length));
  CHECK(drawn.begin()->first >= 0);
  CHECK(drawn.rbegin()->first < mask);
  CHECK(drawn.size() > 95);
}

TEST_CASE("a sample's mask is the same on every rank, and depends on number, seed and validation") {
  const MaskedSource source = masked();
  CHECK(inputs(masked(), 30, 8) == inputs(source, 30, 8));
  CHECK(targets(masked(), 30, 8) == targets(source, 30, 8));
  // 97 samples later the same tokens repeat.
  CHECK(inputs(Counting(), 30) == inputs(Counting(), 127));
  CHECK(targets(source, 30) != targets(source, 127));
  CHECK(targets(source, 30) != targets(masked({.seed = 6}), 30));
  CHECK(targets(source, 30) != targets(masked({.validation = true}), 30));
  // The high half of a number matters.
  const std::int64_t far = 97 * (std::int64_t{1} << 32);
  CHECK(inputs(Counting(), 30) == inputs(Counting(), 30 + far));
  CHECK(targets(source, 30) != targets(source, 30 + far));
}

TEST_CASE("at least one token is chosen, and special ones only if there are too few others") {
  CHECK(masked({.probability = 1e-6}).losses_per_sample() == 1);
  CHECK(masked({.probability = 1}).losses_per_sample() == length);
  CHECK(masked({.probability = 0.1625}).losses_per_sample() == 7);  // 6.5, rounded

  const MaskedSource spares = masked({.special_tokens = {separator}});
  const Tokens found = targets(spares, 0, 500);
  CHECK(std::count(found.begin(), found.end(), separator) == 0);
  const Tokens of_all = targets(masked(), 0, 500);
  CHECK(std::count(of_all.begin(), of_all.end(), separator) > 0);

  MaskingOptions nearly_all{.probability = 0.5};
  for (std::int32_t token = 0; token < 90; ++token) nearly_all.special_tokens.push_back(token);
  const Tokens few = targets(masked(nearly_all), 80);  // tokens 90 … 96 at positions 10 … 16
  CHECK(with_loss(few) == length / 2);
  for (int t = 10; t < 17; ++t) CHECK(few[static_cast<std::size_t>(t)] == 80 + t);
}

TEST_CASE("masks equal the results of Philox by hand") {
  // key = philox(seed, [purpose]) of seed 5 and purpose 6; position 0 of sample 3 is the first two words of its block.
  const auto key = runtime::philox_key(5, runtime::RandomPurpose::masking);
  std::vector<std::pair<std::uint64_t, int>> places;
  for (std::uint32_t t = 0; t < length; ++t) {
    const auto bits = runtime::philox(key, {t, 0, 3, 0});
    places.emplace_back(std::uint64_t{bits[0]} << 32 | bits[1], static_cast<int>(t));
  }
  std::sort(places.begin(), places.end());
  const Tokens found = targets(masked(), 3);
  for (std::size_t i = 0; i < places.size(); ++i)
    CHECK((found[static_cast<std::size_t>(places[i].second)] != no_target) == (i < 6));
}
