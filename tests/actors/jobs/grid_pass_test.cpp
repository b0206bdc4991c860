// Output of a model during training: text samples and answers to questions, on any grid.
#include "models/core/initialize.hpp"
#include "models/families/model.hpp"
#include "models/generation/generator.hpp"
#include "models/text/question_source.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/models/small_choices.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;

namespace {

/// Meaningless questions, some of whose answers are longer than the model's context.
std::vector<SmallExample> questions() {
  std::vector<SmallExample> examples;
  std::uint32_t state = 5;
  const auto draw = [&state](std::uint32_t least, std::uint32_t most) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::uint16_t>(least + (state >> 16) % (most - least + 1));
  };
  for (int e = 0; e < 7; ++e) {
    SmallExample& example = examples.emplace_back();
    for (auto left = draw(1, 6); left > 0; --left) example.context.push_back(draw(0, 36));
    example.completions.resize(draw(2, 4));
    for (auto& completion : example.completions)
      for (auto left = draw(1, 5); left > 0; --left) completion.push_back(draw(0, 36));
    example.right = draw(0, static_cast<std::uint32_t>(example.completions.size()) - 1);
  }
  return examples;
}

struct Fixture {
  Fixture() {
    options.steps = 2;
    options.eval_every = 1;
    options.eval_samples = options.batch_size;
    options.questions = asked;
    options.sample = {.every = 1, .prompt = {3, 1}, .tokens = 9, .sampling = {.temperature = 0.9, .seed = 4}};
  }

  /// A model whose context is longer than the texts, so that passes compute a part of it.
  [[nodiscard]] static models::GptOptions long_gpt() {
    auto gpt = small_gpt();
    gpt.sequence_length = 72;
    return gpt;
  }

  /// A decoder with the initial weights of the runs.
  [[nodiscard]] static models::Decoder decoder(runtime::Device& device) {
    return {device, models::decoder_model(long_gpt()),
            [](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
              models::initialize(unit, small_run().seed, begin, begin + out.size(), out.data());
            }};
  }

  TemporaryFolder folder;
  std::shared_ptr<const models::QuestionFile> asked =
      std::make_shared<models::QuestionFile>(folder.write("questions.bin", question_file(questions())), 37);
  actors::TrainerOptions options = small_run();
  std::unique_ptr<runtime::Device> device = runtime::make_inline_device();
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "texts and answers do not change any bit of the training, and are the same on any grid") {
  auto silent = options;
  silent.sample.every = 0;
  silent.questions = nullptr;
  for (const int g_data : {1, 2}) {
    options.grid = silent.grid = {1, g_data};
    JobResult talking = run_simulated(small_gpt(), options, 1);
    CHECK(talking.texts.size() == 2);
    CHECK(talking.texts.front().size() == 11);
    CHECK(talking.texts.front() != talking.texts.back());
    CHECK(talking.accuracies.size() == 2);
    for (const int g_inter : {2, 4}) {
      CAPTURE(g_inter);
      auto piped = options;
      piped.grid = {g_inter, g_data};
      piped.policy = g_inter == 2 ? Policy::message_driven : Policy::one_f_one_b;
      piped.recompute = g_inter == 2 ? 2 : 0;
      check_same_bits(talking,
                      run_simulated(small_gpt(), piped, 3, g_inter == 2 ? Devices::delayed : Devices::inline_));
    }
    const JobResult quiet = run_simulated(small_gpt(), silent, 1);
    talking.texts.clear();
    talking.accuracies.clear();
    check_same_bits(quiet, talking);
  }
}

TEST_CASE_FIXTURE(Fixture, "a model generates and answers with any sharding of its states") {
  options.grid = {2, 2};
  const JobResult whole = run_simulated(small_gpt(), options, 1);
  for (const char* name : {"zero3", "IGN"}) {
    CAPTURE(name);
    options.sharding = collectives::parse_sharding(name);
    const JobResult shared = run_simulated(small_gpt(), options, 2);
    CHECK(shared.texts == whole.texts);
    CHECK(shared.accuracies == whole.accuracies);
  }
  options.sharding = collectives::parse_sharding("zero3");
  options.tiers.parameters = options.tiers.optimizer = options.tiers.gradients = actors::TierKind::host;
  CHECK(run_simulated(small_gpt(), options, 3).texts == whole.texts);
}

TEST_CASE_FIXTURE(Fixture, "the pipeline draws the tokens that a decoder draws with the same weights") {
  options.steps = 1;
  options.learning_rate = {.peak = 0, .steps = 1};
  options.grid = {3, 1};
  options.sample.tokens = 40;
  for (const double temperature : {0.0, 0.9}) {
    CAPTURE(temperature);
    options.sample.sampling.temperature = temperature;
    const auto texts = run_simulated(long_gpt(), options, 1).texts;
    REQUIRE(texts.size() == 1);
    models::Decoder decoding = decoder(*device);
    models::Generator generator(decoding, options.sample.sampling, options.sample.prompt);
    std::vector<std::int32_t> expected = options.sample.prompt;
    while (expected.size() < 42) expected.push_back(generator.next());
    CHECK(texts.front() == expected);
  }
  options.sample.sampling.temperature = 0;
  const auto whole = run_simulated(long_gpt(), options, 1).texts.front();
  options.sample.end_of_text = whole[4];
  const auto ended = run_simulated(long_gpt(), options, 1).texts.front();
  const auto first = std::find(whole.begin() + 2, whole.end(), whole[4]);
  CHECK(ended == std::vector(whole.begin(), first + 1));
}

TEST_CASE_FIXTURE(Fixture, "the answer to a question is the completion with the least loss per token") {
  options.steps = 1;
  options.learning_rate = {.peak = 0, .steps = 1};
  options.grid = {2, 2};
  options.batch_size = 6;  // not a divisor of the number of choices
  const auto gpt = long_gpt();
  models::Decoder decoding = decoder(*device);
  models::QuestionSource source(asked, gpt.sequence_length);
  int right = 0;
  for (std::size_t e = 0; e < asked->examples(); ++e) {
    std::vector<double> scores;
    for (std::size_t c = 0; c < asked->answers_of(e); ++c) {
      const auto n = static_cast<std::int64_t>(asked->first_answer(e) + c);
      std::vector<std::int32_t> inputs(72), targets(72);
      source.read_input(n, reinterpret_cast<std::byte*>(inputs.data()));
      source.read_target(n, reinterpret_cast<std::byte*>(targets.data()));
      const auto [begin, end] = source.scored(n);
      double loss = 0;
      for (std::size_t p = begin; p < end; ++p) {
        decoding.forget();
        const auto logits = decoding.read(std::span(inputs).first(p + 1));
        double sum = 0;
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
        loss += std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(targets[p])]);
      }
      scores.push_back(loss / static_cast<double>(end - begin));
    }
    const auto best = static_cast<std::size_t>(std::min_element(scores.begin(), scores.end()) - scores.begin());
    right += best == asked->right_answer(e);
  }
  CHECK(right > 0);
  CHECK(right < static_cast<int>(asked->examples()));
  const auto result = run_simulated(gpt, options, 1);
  REQUIRE(result.accuracies.size() == 1);
  CHECK(result.accuracies.front() == static_cast<double>(right) / static_cast<double>(asked->examples()));
}

TEST_CASE_FIXTURE(Fixture, "a stop request also ends answers and texts") {
  options.grid = {2, 1};
  const auto stopped = [&](bool validates, bool answers) {
    options.eval_samples = validates ? options.batch_size : 0;
    options.questions = answers ? asked : nullptr;
    const auto result = run_simulated(small_gpt(), options, 1, {{1, 1}});
    CHECK(result.steps.size() == 1);
    CHECK(result.evaluations.empty());
    CHECK(result.accuracies.empty());
    CHECK(result.texts.empty());
  };
  stopped(true, true);
  stopped(false, true);
  stopped(false, false);
}

TEST_CASE_FIXTURE(Fixture, "memory for outputs of the last layer is planned there and nowhere else") {
  options.grid = {2, 2};
  const auto architecture = models::make_gpt(small_gpt());
  auto silent = options;
  silent.questions = nullptr;
  silent.sample.every = 0;
  for (const int rank : {0, 2}) {
    const auto bytes = [&](const actors::TrainerOptions& of) {
      return plan_of(architecture, of, rank).memory.bytes(runtime::MemorySpace::pinned);
    };
    const std::size_t losses = 4 * 8 * sizeof(double), logits = (37 * sizeof(float) + 63) / 64 * 64;
    CHECK(bytes(options) == bytes(silent) + (rank == 2 ? losses + logits : 0));
  }
}
