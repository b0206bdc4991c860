// Cost of all work of a job: nothing is launched without a cost, and the grid does not change the matrix
// multiplications.
#include "models/images/image_set.hpp"
#include "models/images/image_source.hpp"
#include "models/text/masked_source.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/actors/watched_ranks.hpp"
#include "tests/doubles/recording_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::TierKind;
using runtime::DType;
using runtime::WorkKind;

namespace {

/// Cost over all ranks.
struct JobCost {
  std::array<double, runtime::work_kinds> bytes{};
  double flops = 0;

  [[nodiscard]] double bytes_of(WorkKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
};

/// Trains the job on devices that refuse work without a cost.
JobCost train(const models::Architecture& architecture, const models::SampleSource& samples,
              const actors::TrainerOptions& options) {
  runtime::Simulation simulation(options.grid.ranks(), {.seed = 5});
  std::vector<tests::RecordingDevice*> devices;
  tests::WatchedRanks ranks(simulation, architecture, samples, options, nullptr, [&](int) {
    auto device = std::make_unique<tests::RecordingDevice>();
    devices.push_back(device.get());
    return device;
  });
  ranks.load_weights(options.seed);
  for (tests::RecordingDevice* const device : devices) device->clear();
  ranks.run();
  JobCost cost;
  for (const tests::RecordingDevice* const device : devices) {
    for (const auto& work : device->work()) {
      cost.bytes[static_cast<std::size_t>(work.cost.kind)] += work.cost.bytes;
      cost.flops += work.cost.flops;
    }
  }
  return cost;
}

/// Jobs with different grids, shardings, and locations of states.
std::vector<actors::TrainerOptions> jobs() {
  std::vector<actors::TrainerOptions> jobs(5, tests::small_run());
  jobs[1].grid = {2, 2};
  jobs[1].sharding = collectives::parse_sharding("zero3");
  jobs[2].grid = {1, 2};
  jobs[2].sharding = collectives::parse_sharding("zero2");
  jobs[2].tiers = {.optimizer = TierKind::host, .step = actors::StepLocation::host, .bucket_elements = 300};
  jobs[3].grid = {2, 1};
  jobs[3].recompute = 1;
  jobs[3].tiers = {.parameters = TierKind::host,
                   .gradients = TierKind::host,
                   .optimizer = TierKind::host,
                   .activations = TierKind::host,
                   .bucket_elements = 300};
  jobs[4].precision = {DType::bf16, DType::bf16};
  jobs[4].grid = {2, 2};
  jobs[4].recompute = 1;
  jobs[4].sharding = collectives::parse_sharding("zero3");
  jobs[4].tiers = {.parameters = TierKind::host,
                   .gradients = TierKind::host,
                   .optimizer = TierKind::host,
                   .activations = TierKind::host,
                   .step = actors::StepLocation::host,
                   .bucket_elements = 300};
  return jobs;
}

/// Number of updated parameters: all of them, and those shared by the first and the last layer once per stage that has
/// them.
double elements_of(const models::Architecture& architecture, int stages) {
  auto elements = static_cast<double>(architecture.parameters());
  if (stages == 1) return elements;
  for (const models::UnitSpec& first : architecture.layers.front()->units())
    for (const models::UnitSpec& last : architecture.layers.back()->units())
      for (const models::ParameterSpec& parameter : last.parameters)
        elements += first.name == last.name ? static_cast<double>(parameter.elements()) : 0;
  return elements;
}

/// Number of moving averages, whose updates use no moments.
double averages_of(const models::Architecture& architecture) {
  double elements = 0;
  for (const models::UnitSpec& unit : architecture.units()) {
    for (const models::ParameterSpec& parameter : unit.parameters)
      elements += unit.averaged != 0 ? static_cast<double>(parameter.elements()) : 0;
  }
  return elements;
}

/// `make` creates the model in a precision.
template <typename Make>
void check_family(const Make& make, const models::SampleSource& samples) {
  double flops = 0;
  const auto all = jobs();
  for (std::size_t j = 0; j < all.size(); ++j) {
    CAPTURE(j);
    const actors::TrainerOptions& options = all[j];
    const models::Architecture architecture = make(options.precision);
    const JobCost cost = train(architecture, samples, options);
    const auto trained = static_cast<double>(options.steps * options.batch_size);
    if (j == 0) flops = cost.flops;
    CHECK(flops > 0);
    if (options.recompute == 0) {
      CHECK(cost.flops == doctest::Approx(flops));
    } else {  // most layers' forward passes run a second time
      CHECK(cost.flops > flops * 1.05);
      CHECK(cost.flops < flops * 1.35);
    }
    CHECK(cost.bytes_of(WorkKind::samples) ==
          trained * static_cast<double>(samples.input_bytes() + samples.target_bytes()));
    // Weights and moments are read and written, gradients are read. If layers do not read the weights themselves, the
    // working copy is written, too.
    const bool copied = options.precision.compute != DType::f32 || options.tiers.parameters != TierKind::device;
    const std::size_t of_element =
        6 * sizeof(float) + size_of(options.precision.gradient) + (copied ? size_of(options.precision.compute) : 0);
    const double of_step = elements_of(architecture, options.grid.g_inter) * static_cast<double>(of_element) -
                           averages_of(architecture) * 4 * sizeof(float);
    CHECK(cost.bytes_of(WorkKind::optimizer) == static_cast<double>(options.steps) * of_step);
    CHECK(cost.bytes_of(WorkKind::elementwise) > 0);
    CHECK(cost.bytes_of(WorkKind::host_copy) == 0);
  }
}

}  // namespace

TEST_CASE("all work of training a GPT has a cost, and the grid does not change its matrix multiplications") {
  auto gpt = tests::small_gpt();
  gpt.dropout = 0.1f;
  check_family(
      [&](const models::Precision& precision) { return models::make_gpt(tests::in_precision(gpt, precision)); },
      tests::RandomTokens(gpt.sequence_length, gpt.vocab_size));
}

TEST_CASE("all work of training a LLaMA has a cost, and the grid does not change its matrix multiplications") {
  models::LlamaOptions llama = tests::small_llama();
  llama.window = 5;
  llama.qkv_bias = llama.qk_norm = true;
  check_family(
      [&](const models::Precision& precision) {
        llama.precision = precision;
        return models::make_llama(llama);
      },
      tests::RandomTokens(llama.sequence_length, llama.vocab_size));
}

TEST_CASE("all work of training a BERT has a cost, and the grid does not change its matrix multiplications") {
  models::BertOptions bert = tests::small_bert();
  check_family(
      [&](const models::Precision& precision) {
        bert.precision = precision;
        return models::make_bert(bert);
      },
      models::MaskedSource(std::make_unique<tests::RandomTokens>(bert.sequence_length, bert.vocab_size - 1),
                           {.probability = 0.3, .mask_token = 36, .tokens = 36, .seed = 11}));
}

TEST_CASE(
    "all work of training a residual network has a cost, and the grid does not change its matrix multiplications") {
  models::ResnetOptions resnet = tests::small_resnet;
  const auto set = std::make_shared<const models::SyntheticSet>(resnet.image_size, resnet.classes);
  check_family(
      [&](const models::Precision& precision) {
        resnet.precision = precision;
        return models::make_resnet(resnet);
      },
      models::ImageSource(set, 0, 1000, std::nullopt));
}
