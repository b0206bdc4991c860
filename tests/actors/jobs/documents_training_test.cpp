// Complete jobs whose samples have documents that do not attend to each other. They give the same bits on every grid,
// under every schedule, with or without recomputation, with states anywhere; losses are means over the elements that
// have one.
#include "models/families/gpt.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::TierKind;

namespace {

template <typename Make>
void check_every_way(const Make& make) {
  const tests::RandomTokens tokens(8, 37, 1 << 20, true);
  for (const char* name : {"ddp", "zero3"}) {
    CAPTURE(name);
    auto options = tests::small_run({1, 2}, name);
    options.eval_every = 1;
    options.eval_samples = 5;
    const auto reference = run_simulated(make(), tokens, options, 1);
    for (const auto policy : {actors::Policy::message_driven, actors::Policy::one_f_one_b, actors::Policy::gpipe,
                              actors::Policy::zero_bubble, actors::Policy::zb_h1}) {
      CAPTURE(static_cast<int>(policy));
      options.policy = policy;
      options.grid.g_inter = 3;
      options.recompute = 1;
      options.tiers = {};
      check_same_bits(reference, run_simulated(make(), tokens, options, 2));
      options.recompute = 2;
      options.tiers = {.parameters = TierKind::host,
                       .optimizer = TierKind::host,
                       .activations = TierKind::host,
                       .bucket_elements = 256};
      check_same_bits(reference, run_simulated(make(), tokens, options, 3, {}, tests::Devices::delayed));
    }
  }
}

}  // namespace

TEST_CASE(
    "samples of several documents give the same bits on every grid, under every schedule, with states anywhere") {
  SUBCASE("GPT") {
    check_every_way([] { return models::make_gpt(tests::small_gpt()); });
  }
  SUBCASE("GPT in tiles") {
    auto gpt = tests::small_gpt();
    gpt.tile = 2;
    check_every_way([gpt] { return models::make_gpt(gpt); });
  }
  SUBCASE("LLaMA") {
    check_every_way([] { return models::make_llama(tests::small_llama()); });
  }
}

TEST_CASE("documents reach a device whose memory the host cannot access through planned pinned memory") {
  const tests::RandomTokens tokens(8, 37, 1 << 20, true);
  auto options = tests::small_run({1, 1});
  const auto architecture = models::make_gpt(tests::small_gpt());
  const auto reference = run_simulated(architecture, tokens, options, 1);
  options.gpu = {{.scratch_bytes = 0, .staged = true}};
  check_same_bits(reference, run_simulated(architecture, tokens, options, 2, {}, tests::Devices::far));
}

TEST_CASE("the loss, also of an evaluation, is a mean over the elements that have one, regardless of their ranks") {
  const tests::RandomTokens tokens(8, 37, 1 << 20, true);
  const auto architecture = models::make_gpt(tests::small_gpt());
  auto options = tests::small_run();
  options.steps = 1;
  const double loss = run_simulated(architecture, tokens, options, 1).steps.front().loss;
  CHECK(loss == doctest::Approx(std::log(37.0)).epsilon(0.02));  // an untrained model's, over the counted elements
  CHECK(tokens.losses(0, 8) < 8 * 8 * 3 / 4);
  for (const int rows : {2, 4}) {
    for (const int microbatch : {1, 2}) {
      options.grid = {1, rows};
      options.microbatch_size = microbatch;
      CHECK(run_simulated(architecture, tokens, options, 1).steps.front().loss ==
            doctest::Approx(loss).epsilon(1e-9));
    }
  }
  auto evaluation = options;
  evaluation.steps = 0;
  evaluation.eval_samples = 8;
  const auto evaluated = run_simulated(architecture, tokens, evaluation, 1).evaluations;
  REQUIRE(evaluated.size() == 1);
  CHECK(evaluated.front() == doctest::Approx(loss).epsilon(1e-9));
}
