// Complete jobs of residual networks: like transformers, they give the same bits on every grid, with any sharding and
// any location of states. Running statistics are states like others.
#include "models/families/resnet.hpp"
#include "models/images/image_source.hpp"
#include "models/images/synthetic_set.hpp"
#include "tests/actors/same_bits.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>

using namespace ranvier;
using actors::TierKind;

namespace {

constexpr models::ResnetOptions small{
    .blocks = {1, 1, 1, 1}, .channels = 4, .width = 1, .image_size = 8, .classes = 3};

tests::JobResult train(const actors::TrainerOptions& options, std::uint64_t seed,
                       tests::Devices devices = tests::Devices::inline_) {
  models::ResnetOptions resnet = small;
  resnet.precision = options.precision;
  const auto set = std::make_shared<const models::SyntheticSet>(resnet.image_size, resnet.classes);
  const models::ImageSource images(set, 0, 1000, std::nullopt);
  return run_simulated(models::make_resnet(resnet), images, options, seed, {}, devices);
}

/// Statistics of the first channel of the first norm.
struct Statistics {
  double mean = 0, variance = 0;
};

Statistics first_norm(const tests::JobResult& job) {
  const auto unit = models::make_resnet(small).units()[1];  // running means, then variances
  REQUIRE(unit.name == "stem.statistics");
  const std::vector<float>& values = job.weights.at(unit.name);
  return {values[0], values[unit.offset(1)]};
}

}  // namespace

TEST_CASE("a residual network gives the same bits on every grid, sharded or not, with states anywhere") {
  for (const std::string name : {"ddp", "mics", "zero3"}) {
    CAPTURE(name);
    auto options = tests::small_run();
    options.grid = {1, 2};
    options.sharding = collectives::parse_sharding(name);
    const auto reference = train(options, 1);
    for (const int g_inter : {1, 3}) {
      CAPTURE(g_inter);
      options.grid.g_inter = g_inter;
      options.policy = g_inter == 3 ? actors::Policy::one_f_one_b : actors::Policy::message_driven;
      options.recompute = g_inter == 3 ? 1 : 0;
      options.tiers = {};
      check_same_bits(reference, train(options, 2));
      options.recompute = 2;
      options.tiers = {.parameters = TierKind::host,
                       .optimizer = TierKind::host,
                       .activations = TierKind::host,
                       .bucket_elements = 256};
      check_same_bits(reference, train(options, 3, tests::Devices::delayed));
    }
  }
}

TEST_CASE("a residual network gives the same bits under every schedule, in chunks, and in every precision") {
  for (const auto compute : {runtime::DType::f32, runtime::DType::bf16, runtime::DType::f16}) {
    CAPTURE(runtime::to_string(compute));
    auto options = tests::small_run();
    options.grid = {1, 2};
    tests::set_precision(options, compute);
    const auto reference = train(options, 1);
    std::uint64_t seed = 2;
    for (const auto& [name, order] : tests::pipeline_orders(options)) {
      CAPTURE(name);
      check_same_bits(reference, train(order, seed++));
    }
  }
}

TEST_CASE("running statistics average batch statistics, regardless of clipping, decay and learning rate") {
  auto options = tests::small_run();
  options.grid = {1, 1};
  options.steps = 1;
  const Statistics usual = first_norm(train(options, 1));
  // From 0 and 1, a tenth of the way to the statistics of the first batch.
  CHECK(usual.mean != 0);
  CHECK(std::abs(usual.mean) < 0.5);
  CHECK(usual.variance != 1);
  CHECK(usual.variance > 0.9);
  options.clip = 1e-6;
  options.adamw.weight_decay = 0.5;
  options.learning_rate.peak *= 3;
  const Statistics other = first_norm(train(options, 1));
  CHECK(other.mean == usual.mean);
  CHECK(other.variance == usual.variance);
  // A loss scale does not affect them either; half precision rounds.
  options.loss_scale = {.scale = 1024, .dynamic = true};
  options.precision = {.compute = runtime::DType::f16, .gradient = runtime::DType::f16};
  const Statistics half = first_norm(train(options, 1));
  CHECK(half.mean == doctest::Approx(usual.mean).epsilon(0.05));
  CHECK(half.variance == doctest::Approx(usual.variance).epsilon(0.01));
}

TEST_CASE("the number of correct predictions is the same for any grid and batch size, and each image counts once") {
  auto options = tests::small_run();
  options.eval_samples = 37;
  const auto correct = [&](int stages, int rows, std::uint64_t seed) {
    options.grid = {stages, rows};
    const auto result = train(options, seed);
    REQUIRE(result.correct.size() == 1);
    return result.correct.front();
  };
  // After training, which depends on the number of rows.
  options.eval_every = options.steps;
  const double trained = correct(1, 2, 1);
  CHECK(correct(3, 2, 2) == trained);
  options.recompute = 1;
  CHECK(correct(2, 2, 3) == trained);

  options.steps = 0;
  const double alone = correct(1, 1, 4);
  CHECK(alone > 0);
  CHECK(alone < 1);
  for (const char* const name : {"ddp", "zero3"}) {
    options.sharding = collectives::parse_sharding(name);
    options.microbatch_size = 3;
    CHECK(correct(3, 2, 5) == alone);
    options.batch_size = 12;
    CHECK(correct(1, 4, 6) == alone);
  }
  double before = 0;
  for (int samples = 1; samples < 10; ++samples) {
    options.eval_samples = samples;
    const double counted = correct(1, 1, 7) * samples;
    CHECK(std::abs(counted - std::round(counted)) < 1e-9);
    CHECK((std::round(counted) == before || std::round(counted) == before + 1));
    before = std::round(counted);
  }
}
