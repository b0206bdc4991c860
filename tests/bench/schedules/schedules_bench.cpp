// How long the stages of a pipeline idle under each policy, in virtual time: the actors that train, on layers that take
// a time unit for each of forward, input gradients and weight gradients, and links that take none. Beside them what
// somebody could do with the same slots who knows all durations beforehand (known_times.hpp).
//
//   schedules_bench [imbalance=0] [jitter=0] [seeds=1] [chunks=1]
//
// `imbalance` 0.5: stages take 0.5 to 1.5 times as long, drawn by seed; `jitter`: of every piece of work, its standard
// deviation by its mean, lognormal. A piece takes the same under all policies. Prints a JSON line per case, means over
// seeds: `bubble` is the time beyond what the slowest stage computes, as a share of that; `share` the throughput as a
// share of the clairvoyant one; `least_share` as one of what no schedule can beat. With several chunks per rank there
// is `bubble` alone, of even stages. `schedules.py` makes a table and a plot of it.
#include "actors/predict/predicted_job.hpp"
#include "runtime/error.hpp"
#include "tests/bench/schedules/known_times.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace ranvier;
using actors::Policy;

constexpr int layers_of_stage = 8;
constexpr double unit_seconds = 1;  // of a stage's forward pass
constexpr int draws = 50;           // of list scheduling

struct Disturbed {
  double imbalance = 0, jitter = 0;
};

/// Of every piece of work, whatever computes it when.
class Durations {
 public:
  enum Direction { forward, backward, weights, directions };

  Durations(int stages, int microbatches, const Disturbed& disturbed, std::uint64_t seed)
      : microbatches_(microbatches) {
    std::mt19937_64 random(seed);
    const double variance = std::log1p(disturbed.jitter * disturbed.jitter);
    std::lognormal_distribution<double> jitter(-variance / 2, std::sqrt(variance));
    for (int stage = 0; stage < stages; ++stage) {
      const double times = 1 + disturbed.imbalance * std::uniform_real_distribution(-1.0, 1.0)(random);
      for (int i = 0; i < layers_of_stage * microbatches * directions; ++i)
        seconds_.push_back(times * unit_seconds / layers_of_stage * (disturbed.jitter > 0 ? jitter(random) : 1));
    }
  }

  [[nodiscard]] double operator()(int layer, Direction direction, int microbatch) const {
    return seconds_[static_cast<std::size_t>((layer * microbatches_ + microbatch) * directions + direction)];
  }
  [[nodiscard]] int microbatches() const { return microbatches_; }

 private:
  int microbatches_;
  std::vector<double> seconds_;  // [layer, microbatch, direction]
};

/// A part of a stage.
class Even final : public models::Layer {
 public:
  Even(int number, bool last, const Durations& durations)
      : name_(fmt::format("layer {}", number)),
        units_{{.name = name_, .parameters = {{.name = name_, .shape = {1}}}}},
        number_(number),
        last_(last),
        durations_(&durations) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const models::UnitSpec> units() const noexcept override { return units_; }
  double flops_per_sample(int) const override { return 1; }
  std::size_t output_elements(int) const override { return last_ ? 0 : 1; }
  models::LayerMemory memory(models::MicrobatchShape) const override { return {.deferred = 1}; }
  void forward(const models::LayerCall& call, const std::byte*, std::byte*) override {
    compute(call, Durations::forward);
  }
  void backward_input(const models::LayerCall& call, const std::byte*, const std::byte*, std::byte*) override {
    compute(call, Durations::backward);
  }
  void backward_weight(const models::LayerCall& call, const std::byte*) override {
    compute(call, Durations::weights);
  }

 private:
  /// A sample is a microbatch, and those of one step take as long as those of another.
  void compute(const models::LayerCall& call, Durations::Direction direction) const {
    const auto microbatch = static_cast<int>(call.key.first_sample % durations_->microbatches());
    const double seconds = (*durations_)(number_, direction, microbatch);
    call.stream.launch({.kind = runtime::WorkKind::product, .flops = seconds}, [](runtime::ComputePool&) {});
  }

  std::string name_;
  std::vector<models::UnitSpec> units_;
  int number_;
  bool last_;
  const Durations* durations_;
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

/// Of a step.
double step_seconds(Policy policy, int stages, const Durations& durations, int chunks = 1) {
  models::Architecture architecture;
  architecture.positions = 1;
  const int layers = stages * layers_of_stage;
  for (int l = 0; l < layers; ++l)
    architecture.layers.push_back(std::make_unique<Even>(l, l + 1 == layers, durations));
  actors::TrainerOptions options;
  options.grid = {.g_inter = stages, .g_data = 1};
  options.batch_size = durations.microbatches();
  options.policy = policy;
  options.chunks_per_rank = chunks;
  const Stated costs;
  const runtime::MachineProfile profile = machine();
  const NoSamples samples;
  actors::PredictedJob job(architecture, samples, options, profile, {costs, costs}, {});
  return job.run().step_seconds;
}

/// The same pipeline with all durations known, and the limits of zero-bubble and ZB-H1.
bench::KnownPipeline known(int stages, const Durations& durations) {
  const int microbatches = durations.microbatches();
  bench::KnownPipeline pipeline;
  pipeline.slots = std::min(stages, microbatches);
  for (int stage = 0; stage < stages; ++stage) {
    pipeline.deferred.push_back(std::min(stage + 1, pipeline.slots));
    auto& all = pipeline.times.emplace_back(static_cast<std::size_t>(microbatches));
    for (int m = 0; m < microbatches; ++m) {
      bench::PassTimes& times = all[static_cast<std::size_t>(m)];
      for (int l = (stage + 1) * layers_of_stage; l-- > stage * layers_of_stage;) {
        times.forward += durations(l, Durations::forward, m);
        times.backward += durations(l, Durations::backward, m);
        times.weights.push_back(durations(l, Durations::weights, m));
      }
    }
  }
  return pipeline;
}

double slowest_stage(const bench::KnownPipeline& pipeline) {
  double slowest = 0;
  for (const auto& stage : pipeline.times) {
    double sum = 0;
    for (const bench::PassTimes& times : stage)
      sum += times.forward + times.backward + std::accumulate(times.weights.begin(), times.weights.end(), 0.0);
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

/// Interleaved 1F1B idles for as many times less as there are chunks.
void run_chunks(double jitter, int seeds, int chunks) {
  for (const int stages : {2, 4, 8, 16}) {
    for (const int microbatches : {stages, 2 * stages, 4 * stages}) {
      for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}) {
        double bubble = 0;
        for (int seed = 0; seed < seeds; ++seed) {
          const Durations durations(stages, microbatches, {0, jitter}, static_cast<std::uint64_t>(seed));
          // By rank: its layers are those of several slices.
          const int layers_of_slice = layers_of_stage / chunks;
          std::vector<double> work(static_cast<std::size_t>(stages), 0.0);
          for (int l = 0; l < stages * layers_of_stage; ++l) {
            for (int m = 0; m < microbatches; ++m) {
              for (const auto direction : {Durations::forward, Durations::backward, Durations::weights})
                work[static_cast<std::size_t>(l / layers_of_slice % stages)] += durations(l, direction, m);
            }
          }
          const double slowest = *std::max_element(work.begin(), work.end());
          bubble += (step_seconds(policy, stages, durations, chunks) / slowest - 1) / seeds;
        }
        fmt::print(
            R"({{"policy": "{}", "chunks": {}, "stages": {}, "microbatches": {}, "jitter": {}, "seeds": {}, )"
            R"("bubble": {:.6f}, "formula": {:.6f}}})"
            "\n",
            to_string(policy), chunks, stages, microbatches, jitter, seeds, bubble,
            2.0 / 3 * (stages - 1) / (chunks * microbatches));
      }
    }
  }
}

int run(const std::vector<std::string>& words) {
  const auto number = [&](std::size_t place, double otherwise) {
    return place < words.size() ? std::stod(words[place]) : otherwise;
  };
  const Disturbed disturbed{.imbalance = number(0, 0), .jitter = number(1, 0)};
  const int seeds = static_cast<int>(number(2, 1)), chunks = static_cast<int>(number(3, 1));
  if (chunks > 1) {
    if (disturbed.imbalance > 0 || layers_of_stage % chunks != 0)
      fail(ErrorCode::usage, "{} chunks with imbalance {}: give 2, 4 or 8 chunks, and imbalance 0", chunks,
           disturbed.imbalance);
    run_chunks(disturbed.jitter, seeds, chunks);
    return EXIT_SUCCESS;
  }
  constexpr std::array policies{Policy::zero_bubble, Policy::zb_h1, Policy::message_driven, Policy::one_f_one_b,
                                Policy::gpipe};
  for (const int stages : {2, 4, 8, 16}) {
    for (const int microbatches : {stages, 2 * stages, 4 * stages}) {
      struct Means {
        double bubble = 0, share = 0, least_share = 0;
      };
      std::array<Means, policies.size()> means;
      for (int seed = 0; seed < seeds; ++seed) {
        const Durations durations(stages, microbatches, disturbed, static_cast<std::uint64_t>(seed));
        const bench::KnownPipeline pipeline = known(stages, durations);
        const double slowest = slowest_stage(pipeline), least = bench::least_seconds(pipeline);
        std::array<double, policies.size()> steps{};
        for (std::size_t i = 0; i < policies.size(); ++i) steps[i] = step_seconds(policies[i], stages, durations);
        // Whoever knows all durations also knows what each policy would do.
        double clairvoyant = bench::clairvoyant_seconds(pipeline, draws, static_cast<std::uint64_t>(seed));
        for (const double step : steps) clairvoyant = std::min(clairvoyant, step);
        for (std::size_t i = 0; i < policies.size(); ++i) {
          means[i].bubble += (steps[i] / slowest - 1) / seeds;
          means[i].share += clairvoyant / steps[i] / seeds;
          means[i].least_share += least / steps[i] / seeds;
        }
      }
      for (std::size_t i = 0; i < policies.size(); ++i) {
        // ZB-H1 idles for a time unit where 1F1B and GPipe idle for three.
        const bool waits = actors::defers_weights(policies[i]);
        const double formula = (stages - 1) / (waits ? 3.0 * microbatches : 1.0 * microbatches);
        fmt::print(
            R"({{"policy": "{}", "stages": {}, "microbatches": {}, "imbalance": {}, "jitter": {}, "seeds": {}, )"
            R"("bubble": {:.6f}, "formula": {:.6f}, "share": {:.6f}, "least_share": {:.6f}}})"
            "\n",
            to_string(policies[i]), stages, microbatches, disturbed.imbalance, disturbed.jitter, seeds,
            means[i].bubble, formula, means[i].share, means[i].least_share);
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
