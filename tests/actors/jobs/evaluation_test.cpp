// The mean loss of the validation samples, and of samples with documents.
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;

namespace {

constexpr std::int64_t eval_samples = 13;

/// Evaluates without training.
double evaluate(actors::TrainerOptions options, std::uint64_t order = 1) {
  options.steps = 0;
  options.eval_samples = eval_samples;
  const auto result = run_simulated(small_gpt(), options, order);
  CHECK(result.steps.empty());
  REQUIRE(result.evaluations.size() == 1);
  return result.evaluations.front();
}

}  // namespace

TEST_CASE("evaluation without training gives the loss of a step with the same samples") {
  auto options = small_run();
  options.batch_size = eval_samples;
  options.steps = 1;
  const auto trained = run_simulated(small_gpt(), options, 1);
  CHECK(evaluate(options) == trained.steps.front().loss);
}

TEST_CASE("an evaluation without training has no memory for gradients and optimizer states") {
  auto options = small_run({2, 1});
  auto gpt = small_gpt();
  gpt.precision = options.precision = {runtime::DType::bf16, runtime::DType::f32};
  const auto architecture = models::make_gpt(gpt);
  const models::SampleBytes sample{32, 32};
  for (const int rank : {0, 1}) {
    const auto bytes = [&](runtime::MemoryKind kind) {
      return actors::plan_rank(architecture, sample, options, rank)
          .memory.bytes(runtime::MemorySpace::device, kind);
    };
    options.steps = 1;
    const std::size_t parameters = bytes(runtime::MemoryKind::parameters);
    CHECK(bytes(runtime::MemoryKind::optimizer) > 0);
    CHECK(bytes(runtime::MemoryKind::gradients) > 0);
    options.steps = 0;
    CHECK(bytes(runtime::MemoryKind::parameters) == parameters);
    CHECK(bytes(runtime::MemoryKind::optimizer) == 0);
    CHECK(bytes(runtime::MemoryKind::gradients) == 0);
  }
}

TEST_CASE("the same samples have the same mean, for any batch size, rows and microbatches, and any last batch") {
  const double expected = evaluate(small_run());
  for (const int rows : {1, 2, 3, 5}) {
    for (const int batch : {1, 3, 20}) {  // samples per row
      for (const int microbatch : {1, 2}) {
        INFO("rows ", rows, ", batch ", batch, ", microbatch ", microbatch);
        auto options = small_run({1, rows});
        options.batch_size = batch * rows;
        options.microbatch_size = microbatch;
        CHECK(evaluate(options) == doctest::Approx(expected).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("shardings do not change any bit of it, and rows without samples of the last batch take part") {
  for (const auto& [rows, batch] : {std::pair{2, 8}, {4, 12}}) {
    auto options = small_run({1, rows});
    options.batch_size = batch;
    options.microbatch_size = 2;
    options.group_size = 2;
    const double expected = evaluate(options);
    for (const char* sharding : {"zero3", "mics"}) {
      INFO("rows ", rows, ", sharding ", sharding);
      options.sharding = collectives::parse_sharding(sharding);
      CHECK(evaluate(options, 7) == expected);
    }
  }
}

TEST_CASE("the loss, also of an evaluation, is a mean over the elements that have one, regardless of their ranks") {
  const RandomTokens tokens(8, 37, 1 << 20, true);
  const auto architecture = models::make_gpt(small_gpt());
  auto options = small_run();
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
