// Complete jobs of all families: like GPT's, they train the same bits on every grid, with and without sharding, with
// states in any memory. A family adds a row to families().
#include "models/images/image_set.hpp"
#include "models/images/image_source.hpp"
#include "models/text/masked_source.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using actors::TierKind;
using actors::TrainerOptions;

namespace {

JobResult train_bert(bool roberta, const TrainerOptions& options, std::uint64_t seed,
                     Devices devices = Devices::inline_, int tile = 1, bool documents = false) {
  models::BertOptions bert = small_bert(roberta, options.precision);
  bert.tile = tile;
  const models::MaskedSource masked(
      std::make_unique<RandomTokens>(bert.sequence_length, bert.vocab_size - 1, 1 << 20, documents),
      {.probability = 0.3, .mask_token = 36, .tokens = 36, .seed = options.seed});
  return run_simulated(models::make_bert(bert), masked, options, seed, {}, devices);
}

/// Heads share keys; with a window, norms per head and biases; if `tied`, also with fused tensors like Phi-3's. 150
/// `words` make several tiles of the tables.
JobResult train_llama(bool tied, const TrainerOptions& options, std::uint64_t seed, Devices devices, int tile,
                      int words) {
  models::LlamaOptions llama = small_llama(options.precision);
  llama.window = 5;
  llama.qkv_bias = llama.qk_norm = true;
  llama.tied = llama.fused = tied;
  llama.vocab_size = words;
  llama.tile = tile;
  return run_simulated(models::make_llama(llama), RandomTokens(llama.sequence_length, words), options, seed, {},
                       devices);
}

JobResult train_resnet(const TrainerOptions& options, std::uint64_t seed, Devices devices = Devices::inline_) {
  models::ResnetOptions resnet = small_resnet;
  resnet.precision = options.precision;
  const auto set = std::make_shared<const models::SyntheticSet>(resnet.image_size, resnet.classes);
  const models::ImageSource images(set, 0, 1000, std::nullopt);
  return run_simulated(models::make_resnet(resnet), images, options, seed, {}, devices);
}

/// Trains a job of a family, whole (tile 1) or in tiles.
using Train = std::function<JobResult(const TrainerOptions&, std::uint64_t seed, Devices, int tile)>;

struct Family {
  std::string name;
  std::vector<const char*> shardings;        ///< for untiled models
  std::vector<const char*> tiled_shardings;  ///< none: it has no tiles
  Train train;
  Train train_for_tiles = nullptr;  ///< null: the same
  Policy policy_of_stages = Policy::message_driven;
};

std::vector<Family> families() {
  const auto bert = [](bool roberta) {
    return [roberta](const TrainerOptions& options, std::uint64_t seed, Devices devices, int tile) {
      return train_bert(roberta, options, seed, devices, tile);
    };
  };
  const auto llama = [](bool tied, int words) {
    return [tied, words](const TrainerOptions& options, std::uint64_t seed, Devices devices, int tile) {
      return train_llama(tied, options, seed, devices, tile, words);
    };
  };
  const auto resnet = [](const TrainerOptions& options, std::uint64_t seed, Devices devices, int) {
    return train_resnet(options, seed, devices);
  };
  // Running statistics of a residual network are states like others.
  return {{"BERT", {"ddp", "zero3"}, {"zero3"}, bert(false)},
          {"RoBERTa", {"ddp", "zero3"}, {"ddp"}, bert(true)},
          {"LLaMA", {"ddp", "zero3"}, {"zero3"}, llama(false, 37), llama(false, 150)},
          {"tied Phi-3", {"ddp", "zero3"}, {"zero3", "ddp"}, llama(true, 37), llama(true, 150)},
          {"residual network", {"ddp", "mics", "zero3"}, {}, resnet, nullptr, Policy::one_f_one_b}};
}

/// On `g_inter` stages, with states on the device and then in host memory.
void check_stages(const Family& family, const Train& train, const JobResult& reference, TrainerOptions options,
                  int g_inter, int tile) {
  CAPTURE(g_inter);
  options.grid.g_inter = g_inter;
  options.policy = g_inter == 3 ? family.policy_of_stages : Policy::message_driven;
  options.recompute = g_inter == 3 ? 1 : 0;
  check_same_bits(reference, train(options, 2, Devices::inline_, tile));
  options.recompute = 2;
  options.tiers = {.parameters = TierKind::host,
                   .optimizer = TierKind::host,
                   .activations = TierKind::host,
                   .bucket_elements = 256};
  check_same_bits(reference, train(options, 3, Devices::delayed, tile));
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

TEST_CASE("every family trains the same bits on every grid, sharded or not, with states in any memory") {
  for (const Family& family : families()) {
    for (const char* const name : family.shardings) {
      INFO("family.name ", family.name, ", name ", name);
      const TrainerOptions options = small_run({1, 2}, name);
      const JobResult reference = family.train(options, 1, Devices::inline_, 1);
      for (const int g_inter : {1, 3}) check_stages(family, family.train, reference, options, g_inter, 1);
    }
  }
}

TEST_CASE(
    "a model in tiles trains the same bits on every grid, with states in any memory, and the untiled model's "
    "losses") {
  tests::Share share(1, 2);
  for (const Family& family : families()) {
    const Train& train = family.train_for_tiles ? family.train_for_tiles : family.train;
    for (const char* const name : family.tiled_shardings) {
      INFO("family.name ", family.name, ", name ", name);
      const TrainerOptions options = small_run({1, 2}, name);
      const JobResult reference = train(options, 1, Devices::inline_, 4),
                      whole = train(options, 1, Devices::inline_, 1);
      for (std::size_t step = 0; step < whole.steps.size(); ++step)
        CHECK(reference.steps[step].loss == doctest::Approx(whole.steps[step].loss).epsilon(1e-6));
      for (const int g_inter : {3, 1})
        if (share.takes()) check_stages(family, train, reference, options, g_inter, 4);
    }
  }
}

TEST_CASE("every family trains the same bits under every policy, in chunks, and in every precision") {
  tests::Share share(1, 3);
  for (const auto compute : {runtime::DType::f32, runtime::DType::bf16, runtime::DType::f16}) {
    for (const Family& family : families()) {
      // Each kind of model once for each type: RoBERTa for bf16, BERT for the others.
      if (family.name == (compute == runtime::DType::bf16 ? "BERT" : "RoBERTa") || family.name == "LLaMA") continue;
      INFO("compute ", runtime::to_string(compute), ", name ", family.name);
      TrainerOptions options = small_run({1, 2});
      set_precision(options, compute);
      const JobResult reference = family.train(options, 1, Devices::inline_, 1);
      std::uint64_t seed = 2;
      for (const auto& [name, order] : pipeline_orders(options)) {
        if (!share.takes()) continue;
        CAPTURE(name);
        check_same_bits(reference, family.train(order, seed++, Devices::inline_, 1));
      }
    }
  }
}

TEST_CASE(
    "documents that a BERT's positions keep to train the same bits on every grid, and other ones than one text") {
  for (const bool roberta : {false, true}) {
    CAPTURE(roberta);
    auto options = small_run({1, 2});
    options.eval_every = 1;
    options.eval_samples = 5;
    const auto reference = train_bert(roberta, options, 1, Devices::inline_, 1, true);
    CHECK(reference.steps.back().loss != train_bert(roberta, options, 1).steps.back().loss);
    for (const auto policy : {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}) {
      CAPTURE(static_cast<int>(policy));
      options.policy = policy;
      options.grid.g_inter = 3;
      options.recompute = 1;
      check_same_bits(reference, train_bert(roberta, options, 2, Devices::delayed, 1, true));
    }
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
  // After training, which another number of rows would change.
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
