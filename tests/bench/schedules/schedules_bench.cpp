// Idle time of pipeline stages under each policy, in virtual time. The real actors run layers that take one time unit
// each for forward, input gradients and weight gradients; links take none. The reference is the best schedule for known
// durations with the same slots (known_times.hpp). `schedules.py` makes tables and a plot.
//
//   schedules_bench [imbalance=0] [jitter=0] [seeds=1] [chunks=1]

// `imbalance` 0.5: ranks take 0.5 to 1.5 times as long, by seed. `jitter`: standard deviation over mean of all work,
// lognormal, the same under all policies. `chunks`: slices per rank; the layers per rank do not depend on it.
//
// One JSON line per case, means over seeds. `seconds`: duration of a step. `bubble`: time beyond the slowest rank's
// work, as a share of that work. `share`: throughput relative to the reference with as many chunks. `min_share`: the
// same relative to a bound of all schedules. `slots`: most microbatches in flight on a rank, weighted by the chunk's
// share of the rank's layers.
#include "actors/predict/predicted_job.hpp"
#include "actors/rank/rank_plan.hpp"
#include "actors/schedule/slice_order.hpp"
#include "tests/bench/bench.hpp"
#include "tests/bench/schedules/known_times.hpp"
#include "tests/doubles/stated_layer.hpp"

#include <cmath>
#include <random>

namespace {

using namespace ranvier;
using actors::Policy;
using actors::SliceMap;

constexpr int layers_of_stage = 8;
constexpr double unit_seconds = 1;  // duration of a stage's forward pass
constexpr int draws = 50;           // random draws of list scheduling

struct Disturbed {
  double imbalance = 0, jitter = 0;
};

/// Duration of every work item, independent of time and policy.
class Durations {
 public:
  using Direction = tests::StatedLayer::Direction;
  static constexpr int directions = 3;

  Durations(const SliceMap& map, int microbatches, const Disturbed& disturbed, std::uint64_t seed)
      : microbatches_(microbatches) {
    std::mt19937_64 random(seed);
    const double variance = std::log1p(disturbed.jitter * disturbed.jitter);
    std::lognormal_distribution<double> jitter(-variance / 2, std::sqrt(variance));
    std::vector<double> times_of_rank;
    for (int stage = 0; stage < map.stages; ++stage) {
      times_of_rank.push_back(1 + disturbed.imbalance * std::uniform_real_distribution(-1.0, 1.0)(random));
      for (int i = 0; i < layers_of_stage * microbatches * directions; ++i)
        seconds_.push_back(unit_seconds / layers_of_stage * (disturbed.jitter > 0 ? jitter(random) : 1));
    }
    const std::size_t of_slice = seconds_.size() / static_cast<std::size_t>(map.slices());
    for (std::size_t i = 0; i < seconds_.size(); ++i)
      seconds_[i] *= times_of_rank[static_cast<std::size_t>(map.stage_of(static_cast<int>(i / of_slice)))];
  }

  [[nodiscard]] double operator()(int layer, Direction direction, int microbatch) const {
    return seconds_[static_cast<std::size_t>((layer * microbatches_ + microbatch) * directions + direction)];
  }
  [[nodiscard]] int microbatches() const { return microbatches_; }

 private:
  int microbatches_;
  std::vector<double> seconds_;  // [layer, microbatch, direction]
};

/// Figures of a policy.
struct Outcome {
  double seconds = 0;  // duration of a step
  double slots = 0;    // most microbatches in flight on a rank
};

Outcome outcome_of(Policy policy, const SliceMap& map, const Durations& durations) {
  models::Architecture architecture;
  architecture.positions = 1;
  const int layers = map.stages * layers_of_stage;
  for (int l = 0; l < layers; ++l)
    architecture.layers.push_back(std::make_unique<tests::StatedLayer>(
        l, l + 1 == layers, [l, &durations](Durations::Direction direction, const models::LayerCall& call) {
          // A sample is a microbatch; durations are the same in every step.
          return durations(l, direction, static_cast<int>(call.key.first_sample % durations.microbatches()));
        }));
  actors::TrainerOptions options;
  options.grid = {.g_inter = map.stages, .g_data = 1};
  options.batch_size = durations.microbatches();
  options.policy = policy;
  options.chunks_per_rank = map.chunks;
  const tests::CostsOf costs = tests::StatedLayer::costs();
  const runtime::MachineProfile profile = tests::instant_machine();
  const tests::NoSamples samples;
  actors::PredictedJob job(architecture, samples, options, profile, {.costs = &costs}, {});
  Outcome outcome;
  for (int rank = 0; rank < map.stages; ++rank) {
    const std::vector<int>& slots = job.rank(rank).plan().slots;
    outcome.slots = std::max(outcome.slots, std::accumulate(slots.begin(), slots.end(), 0.0) / map.chunks);
  }
  outcome.seconds = job.run().step_seconds;
  return outcome;
}

/// The same pipeline with known durations, and the limits of zero-bubble and ZB-H1.
bench::KnownPipeline known(const SliceMap& map, const Durations& durations) {
  const int microbatches = durations.microbatches(), layers_of_slice = layers_of_stage / map.chunks;
  bench::KnownPipeline pipeline{.map = map, .times = {}, .slots = {}, .deferred = {}};
  for (int slice = 0; slice < map.slices(); ++slice) {
    auto& all = pipeline.times.emplace_back(static_cast<std::size_t>(microbatches));
    for (int m = 0; m < microbatches; ++m) {
      bench::PassTimes& times = all[static_cast<std::size_t>(m)];
      for (int l = (slice + 1) * layers_of_slice; l-- > slice * layers_of_slice;) {
        times.forward += durations(l, Durations::Direction::forwards, m);
        times.backward += durations(l, Durations::Direction::backwards, m);
        times.weights.push_back(durations(l, Durations::Direction::weights, m));
      }
    }
  }
  actors::TrainerOptions options;
  options.grid = {.g_inter = map.stages, .g_data = 1};
  options.policy = Policy::zero_bubble;
  options.chunks_per_rank = map.chunks;
  for (int stage = 0; stage < map.stages; ++stage) {
    pipeline.slots.push_back(actors::slice_slots(options.policy, stage, map.stages, map.chunks, microbatches, 0));
    auto& deferred = pipeline.deferred.emplace_back();
    for (const int slots : pipeline.slots.back())
      deferred.push_back(std::min(actors::deferred_slots(options, stage), slots));
  }
  return pipeline;
}

double slowest_rank(const bench::KnownPipeline& pipeline) {
  std::vector<double> seconds(static_cast<std::size_t>(pipeline.map.stages), 0.0);
  for (int slice = 0; slice < pipeline.map.slices(); ++slice) {
    double& sum = seconds[static_cast<std::size_t>(pipeline.map.stage_of(slice))];
    for (const bench::PassTimes& times : pipeline.times[static_cast<std::size_t>(slice)])
      sum += times.forward + times.backward + std::accumulate(times.weights.begin(), times.weights.end(), 0.0);
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

/// Idle time over computing time without disturbance, by the papers' formulas. 1F1B and GPipe compute weight gradients
/// before the next pass, after sending the input gradient; ZB-H1 in idle time.
double formula(Policy policy, const SliceMap& map, int microbatches) {
  const double thirds = actors::defers_weights(policy) ? 1 : 2;
  return thirds / 3 * (map.stages - 1) / (map.chunks * microbatches);
}

void run(const std::vector<std::string>& words) {
  const auto number = [&](std::size_t place, double otherwise) {
    return place < words.size() ? std::stod(words[place]) : otherwise;
  };
  const Disturbed disturbed{.imbalance = number(0, 0), .jitter = number(1, 0)};
  const int seeds = static_cast<int>(number(2, 1)), chunks = static_cast<int>(number(3, 1));
  if (chunks < 1 || layers_of_stage % chunks != 0) fail(ErrorCode::usage, "{} chunks: give 1, 2, 4 or 8", chunks);
  std::vector<Policy> policies{Policy::zero_bubble, Policy::message_driven, Policy::one_f_one_b, Policy::gpipe};
  if (chunks == 1) policies.insert(policies.begin() + 1, Policy::zb_h1);
  for (const int stages : {2, 4, 8, 16}) {
    const SliceMap map{stages, chunks};
    for (const int microbatches : {stages, 2 * stages, 4 * stages}) {
      struct Means {
        double seconds = 0, slots = 0, bubble = 0, share = 0, min_share = 0;
      };
      std::vector<Means> means(policies.size());
      for (int seed = 0; seed < seeds; ++seed) {
        const Durations durations(map, microbatches, disturbed, static_cast<std::uint64_t>(seed));
        const bench::KnownPipeline pipeline = known(map, durations);
        const double slowest = slowest_rank(pipeline), least = bench::least_seconds(pipeline);
        std::vector<Outcome> outcomes;
        for (const Policy policy : policies) outcomes.push_back(outcome_of(policy, map, durations));
        // The policies' schedules are candidates of the reference, too.
        double clairvoyant = bench::clairvoyant_seconds(pipeline, draws, static_cast<std::uint64_t>(seed));
        for (const Outcome& outcome : outcomes) clairvoyant = std::min(clairvoyant, outcome.seconds);
        for (std::size_t i = 0; i < policies.size(); ++i) {
          means[i].seconds += outcomes[i].seconds / seeds;
          means[i].slots += outcomes[i].slots / seeds;
          means[i].bubble += (outcomes[i].seconds / slowest - 1) / seeds;
          means[i].share += clairvoyant / outcomes[i].seconds / seeds;
          means[i].min_share += least / outcomes[i].seconds / seeds;
        }
      }
      for (std::size_t i = 0; i < policies.size(); ++i) {
        bench::print_case(
            R"("policy": "{}", "chunks": {}, "stages": {}, "microbatches": {}, "imbalance": {}, "jitter": {}, )"
            R"("seeds": {}, "slots": {:.2f}, "seconds": {:.6f}, "bubble": {:.6f}, "formula": {:.6f}, )"
            R"("share": {:.6f}, "least_share": {:.6f})",
            to_string(policies[i]), chunks, stages, microbatches, disturbed.imbalance, disturbed.jitter, seeds,
            means[i].slots, means[i].seconds, means[i].bubble, formula(policies[i], map, microbatches),
            means[i].share, means[i].min_share);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::status_of("schedules_bench", [&] { run({argv + 1, argv + argc}); });
}
