// How long the stages of a pipeline idle under each policy, in virtual time: the actors that train, on layers that take
// a time unit for each of forward, input gradients and weight gradients, and links that take none.
//
//   schedules_bench [imbalance=0] [jitter=0] [seeds=1]
//
// `imbalance` 0.5: stages take 0.5 to 1.5 times as long, drawn by seed; `jitter`: of every piece of work, its standard
// deviation by its mean. Prints a JSON line per case: `bubble` is the time beyond what the slowest stage computes, as a
// share of that, the mean over seeds. `schedules.py` makes a table and a plot of it.
#include "actors/predict/predicted_job.hpp"
#include "runtime/error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace ranvier;
using actors::Policy;

constexpr int layers_of_stage = 8;
constexpr double unit_seconds = 1;  // of a stage's forward pass

/// A part of a stage, which takes as long for each of its three calls.
class Even final : public models::Layer {
 public:
  Even(int number, bool last, double times)
      : name_(fmt::format("layer {}", number)),
        units_{{.name = name_, .parameters = {{.name = name_, .shape = {1}}}}},
        last_(last),
        seconds_(times * unit_seconds / layers_of_stage) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const models::UnitSpec> units() const noexcept override { return units_; }
  double flops_per_sample(int) const override { return 1; }
  std::size_t output_elements(int) const override { return last_ ? 0 : 1; }
  models::LayerMemory memory(models::MicrobatchShape) const override { return {.deferred = 1}; }
  void forward(const models::LayerCall& call, const std::byte*, std::byte*) override { compute(call); }
  void backward_input(const models::LayerCall& call, const std::byte*, const std::byte*, std::byte*) override {
    compute(call);
  }
  void backward_weight(const models::LayerCall& call, const std::byte*) override { compute(call); }

 private:
  void compute(const models::LayerCall& call) const {
    call.stream.launch({.kind = runtime::WorkKind::product, .flops = seconds_}, [](runtime::ComputePool&) {});
  }

  std::string name_;
  std::vector<models::UnitSpec> units_;
  bool last_;
  double seconds_;
};

/// A layer's work takes the seconds that it states, all other work none.
class Stated final : public runtime::CostModel {
 public:
  runtime::Duration duration(const runtime::WorkCost& cost) const override {
    const double seconds = cost.kind == runtime::WorkKind::product ? cost.flops : 0;
    return std::chrono::duration_cast<runtime::Duration>(std::chrono::duration<double>(seconds));
  }
};

/// Samples that nobody reads.
class NoSamples final : public models::SampleSource {
 public:
  std::int64_t samples() const override { return std::int64_t{1} << 40; }
  std::size_t input_bytes() const override { return sizeof(std::int32_t); }
  std::size_t target_bytes() const override { return sizeof(std::int32_t); }
  std::int64_t losses_per_sample() const override { return 1; }
  void read_inputs(std::int64_t, int, std::byte*) const override {}
  void read_targets(std::int64_t, int, std::byte*) const override {}
};

runtime::MachineProfile machine() {
  constexpr runtime::Link no_time{.latency_seconds = 0, .bytes_per_second = 1e18, .node_bytes_per_second = 0};
  runtime::MachineProfile profile;
  profile.name = "stated times";
  profile.cores = 0;
  profile.links = {no_time, no_time};
  return profile;
}

struct Disturbed {
  double imbalance = 0, jitter = 0;
};

/// Time of a step beyond what its slowest stage computes, as a share of that.
double bubble(Policy policy, int stages, int microbatches, const Disturbed& disturbed, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  models::Architecture architecture;
  architecture.positions = 1;
  double slowest = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const double times = 1 + disturbed.imbalance * std::uniform_real_distribution(-1.0, 1.0)(random);
    slowest = std::max(slowest, times);
    for (int l = 0; l < layers_of_stage; ++l) {
      const int number = stage * layers_of_stage + l;
      architecture.layers.push_back(std::make_unique<Even>(number, number + 1 == stages * layers_of_stage, times));
    }
  }
  actors::TrainerOptions options;
  options.grid = {.g_inter = stages, .g_data = 1};
  options.batch_size = microbatches;
  options.policy = policy;
  const Stated costs;
  const runtime::MachineProfile profile = machine();
  const NoSamples samples;
  actors::PredictedJob job(architecture, samples, options, profile, {costs, costs},
                           {.disturbances = {.seed = seed, .jitter = disturbed.jitter}});
  return job.run().step_seconds / (3 * unit_seconds * slowest * microbatches) - 1;
}

int run(const std::vector<std::string>& words) {
  const auto number = [&](std::size_t place, double otherwise) {
    return place < words.size() ? std::stod(words[place]) : otherwise;
  };
  const Disturbed disturbed{.imbalance = number(0, 0), .jitter = number(1, 0)};
  const int seeds = static_cast<int>(number(2, 1));
  constexpr std::array policies{Policy::zero_bubble, Policy::zb_h1, Policy::message_driven, Policy::one_f_one_b,
                                Policy::gpipe};
  for (const int stages : {2, 4, 8, 16}) {
    for (const int microbatches : {stages, 2 * stages, 4 * stages}) {
      for (const Policy policy : policies) {
        double sum = 0;
        for (int seed = 0; seed < seeds; ++seed)
          sum += bubble(policy, stages, microbatches, disturbed, static_cast<std::uint64_t>(seed));
        // ZB-H1 idles for a time unit where 1F1B and GPipe idle for three.
        const double formula =
            (stages - 1) / (actors::defers_weights(policy) ? 3.0 * microbatches : 1.0 * microbatches);
        fmt::print(
            R"({{"policy": "{}", "stages": {}, "microbatches": {}, "imbalance": {}, "jitter": {}, "seeds": {}, )"
            R"("bubble": {:.6f}, "formula": {:.6f}}})"
            "\n",
            to_string(policy), stages, microbatches, disturbed.imbalance, disturbed.jitter, seeds, sum / seeds,
            formula);
      }
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "schedules_bench: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
