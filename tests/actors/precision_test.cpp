#include "models/initialize.hpp"
#include "runtime/philox.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/seeds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace ranvier;

namespace {

/// A language with something to learn: each token depends on the two before it, with some noise.
class Language final : public models::SampleSource {
 public:
  explicit Language(int length) : length_(length) {}
  std::int64_t samples() const override { return 1 << 20; }
  std::size_t input_bytes() const override { return static_cast<std::size_t>(length_) * sizeof(std::int32_t); }
  std::size_t target_bytes() const override { return input_bytes(); }
  std::int64_t losses_per_sample() const override { return length_; }
  void read_inputs(std::int64_t first, int count, std::byte* to) const override { read(first, count, 0, to); }
  void read_targets(std::int64_t first, int count, std::byte* to) const override { read(first, count, 1, to); }

 private:
  void read(std::int64_t first, int count, int shift, std::byte* to) const {
    for (int s = 0; s < count; ++s) {
      std::int32_t before = 1, last = static_cast<std::int32_t>((first + s) % 16);
      for (int t = 0; t < length_ + shift; ++t) {
        if (t >= shift) {
          std::memcpy(to, &last, sizeof last);
          to += sizeof last;
        }
        const auto bits =
            runtime::philox({3, 3}, {static_cast<std::uint32_t>(first + s), static_cast<std::uint32_t>(t), 0, 0});
        const std::int32_t next =
            bits[0] % 10 == 0 ? static_cast<std::int32_t>(bits[1] % 16) : (before * 5 + last * 3 + 1) % 16;
        before = last;
        last = next;
      }
    }
  }

  int length_;
};

/// The mean loss of the last 50 of 500 steps.
double final_loss(models::Precision precision) {
  const models::GptOptions gpt{
      .layers = 2, .hidden = 32, .heads = 2, .vocab_size = 16, .sequence_length = 16, .precision = precision};
  actors::TrainerOptions options;
  options.batch_size = 8;
  options.microbatch_size = 4;
  options.steps = 500;
  options.seed = 5;
  options.learning_rate = {.peak = 3e-3,
                           .least = 3e-4,
                           .warmup_steps = 20,
                           .steps = 500,
                           .decay = actors::LearningRateOptions::Decay::cosine};
  options.precision = precision;
  const bool scaled = precision.compute == runtime::DType::f16;
  options.loss_scale = {.scale = scaled ? 65536.0 : 1.0, .dynamic = scaled, .growth_interval = 100};
  const auto architecture = models::make_gpt(gpt);
  const Language language(gpt.sequence_length);
  runtime::Simulation simulation(1, {});
  const auto device = runtime::make_inline_device();
  actors::Rank trainer(simulation.loop(0), simulation.transport(0), *device, actors::Rank::Samples{language},
                       actors::plan_rank(architecture, language.sample_bytes(), options, 0));
  trainer.load_weights([&](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    models::initialize(unit, options.seed, begin, begin + out.size(), out.data());
  });
  std::vector<double> losses;
  trainer.start({.step = [&](const actors::StepResult& step) { losses.push_back(step.loss); },
                 .evaluation = {},
                 .done = [&] { simulation.loop(0).stop(); }});
  simulation.run();
  REQUIRE(losses.size() == 500);
  return std::accumulate(losses.end() - 50, losses.end(), 0.0) / 50;
}

}  // namespace

TEST_CASE("half precision ends within one percent of fp32's loss after 500 steps" *
          doctest::skip(test::sanitized)) {
  using runtime::DType;
  const double full = final_loss({DType::f32, DType::f32});
  CHECK(full < 2.0);  // of ln 16 = 2.77: there was something to learn
  for (const models::Precision precision : {models::Precision{DType::bf16, DType::f32},
                                            {DType::f16, DType::f32},
                                            {DType::bf16, DType::bf16},
                                            {DType::f16, DType::f16}}) {
    CAPTURE(runtime::to_string(precision.compute));
    CAPTURE(runtime::to_string(precision.gradient));
    CHECK(final_loss(precision) == doctest::Approx(full).epsilon(0.01));
  }
}
