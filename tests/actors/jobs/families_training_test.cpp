// Complete jobs of families other than GPT's.
#include "models/images/image_set.hpp"
#include "models/images/image_source.hpp"
#include "models/text/masked_source.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::TrainerOptions;

namespace {

std::unique_ptr<models::ImageSource> images() {
  const auto set = std::make_shared<const models::SyntheticSet>(small_resnet.image_size, small_resnet.classes);
  return std::make_unique<models::ImageSource>(set, 0, 1000, std::nullopt);
}

JobResult train_resnet(const TrainerOptions& options, std::uint64_t seed) {
  models::ResnetOptions resnet = small_resnet;
  resnet.precision = options.precision;
  return run_simulated(models::make_resnet(resnet), *images(), options, seed);
}

/// Running statistics of the first norm's first channel.
struct Statistics {
  double mean = 0, variance = 0;
};

Statistics first_norm(const JobResult& job) {
  const auto unit = models::make_resnet(small_resnet).units()[1];  // running means, then variances
  REQUIRE(unit.name == "stem.statistics");
  const std::vector<float>& values = job.weights.at(unit.name);
  return {values[0], values[unit.offset(1)]};
}

}  // namespace

TEST_CASE("a family trains the same bits in any placement, with any sharding, in tiles and with documents") {
  SUBCASE("BERT and RoBERTa") {
    const auto draw_bert = [](Draw& draw) -> DrawnModel {
      const bool roberta = draw(0, 1) == 0;
      models::BertOptions bert = small_bert(roberta, draw_precision(draw));
      auto tokens = draw_tokens(bert.vocab_size - 1, draw);
      if (tokens->document_positions() == 0) bert.tile = draw.of(1, 4);
      return {models::make_bert(bert),
              std::make_unique<models::MaskedSource>(
                  std::move(tokens),
                  models::MaskingOptions{.probability = 0.3, .mask_token = 36, .tokens = 36, .seed = 11})};
    };
    check_any_placement(draw_bert, 64, 600, 8);
  }
  SUBCASE("LLaMA and similar models") {
    const auto draw_llama = [](Draw& draw) -> DrawnModel {
      models::LlamaOptions llama = small_llama(draw_precision(draw));
      llama.tied = draw(0, 1) == 0;
      llama.tile = draw.of(1, 1, 4);
      if (llama.tile > 1) llama.vocab_size = 150;  // several tiles of the tables
      auto tokens = draw_tokens(llama.vocab_size, draw);
      if (tokens->document_positions() == 0) {
        llama.window = 5;
        llama.qkv_bias = llama.qk_norm = true;
        llama.fused = llama.tied;  // like Phi-3
      }
      return {models::make_llama(llama), std::move(tokens)};
    };
    check_any_placement(draw_llama, 64, 600, 8);
  }
  // Running statistics are states like others.
  SUBCASE("residual networks") {
    const auto draw_resnet = [](Draw& draw) -> DrawnModel {
      models::ResnetOptions resnet = small_resnet;
      resnet.precision = draw_precision(draw);
      return {models::make_resnet(resnet), images()};
    };
    check_any_placement(draw_resnet, 40, 400, 5);
  }
}

TEST_CASE("running statistics average the batches' statistics, for any clipping, decay and learning rate") {
  auto options = small_run({1, 1});
  options.steps = 1;
  const Statistics usual = first_norm(train_resnet(options, 1));
  // From 0 and 1, a tenth of the way to what the first batch had.
  CHECK(usual.mean != 0);
  CHECK(std::abs(usual.mean) < 0.5);
  CHECK(usual.variance != 1);
  CHECK(usual.variance > 0.9);
  options.clip = 1e-6;
  options.adamw.weight_decay = 0.5;
  options.learning_rate.peak *= 3;
  const Statistics other = first_norm(train_resnet(options, 1));
  CHECK(other.mean == usual.mean);
  CHECK(other.variance == usual.variance);
  // A loss scale has no part in them either; half precision rounds.
  options.loss_scale = {.scale = 1024, .dynamic = true};
  options.precision = {.compute = runtime::DType::f16, .gradient = runtime::DType::f16};
  const Statistics half = first_norm(train_resnet(options, 1));
  CHECK(half.mean == doctest::Approx(usual.mean).epsilon(0.05));
  CHECK(half.variance == doctest::Approx(usual.variance).epsilon(0.01));
}

TEST_CASE("as many images are classified correctly on any grid and in batches of any size, and each counts once") {
  auto options = small_run();
  options.eval_samples = 37;
  const auto correct = [&](int stages, int rows, std::uint64_t seed) {
    options.grid = {stages, rows};
    const auto result = train_resnet(options, seed);
    REQUIRE(result.correct.size() == 1);
    return result.correct.front();
  };
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
