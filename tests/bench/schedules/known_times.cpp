#include "tests/bench/schedules/known_times.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <random>
#include <utility>

namespace ranvier::bench {

using actors::Direction;
using actors::PipelineProgress;
using actors::Policy;

namespace {

double weights_of(const PassTimes& times) {
  return std::accumulate(times.weights.begin(), times.weights.end(), 0.0);
}

/// Stages in turn, as they become free or something comes to them.
class Simulation {
 public:
  Simulation(const KnownPipeline& pipeline, const Rule& rule) : pipeline_(&pipeline), rule_(&rule) {
    for (int s = 0; s < pipeline.stages(); ++s) {
      Stage& stage = stages_.emplace_back();
      stage.arrived = s == 0 ? pipeline.microbatches() : 0;
    }
  }

  double run() {
    for (int s = 0; s < pipeline_->stages(); ++s) choose(s);
    while (!ends_.empty()) {
      now_ = ends_.top().first;
      // All that ends now is seen before anything is chosen.
      std::vector<int> touched;
      while (!ends_.empty() && ends_.top().first == now_) {
        end(ends_.top().second, touched);
        ends_.pop();
      }
      for (const int s : touched) choose(s);
    }
    for (const Stage& stage : stages_)
      if (stage.weights < pipeline_->microbatches()) return std::numeric_limits<double>::infinity();  // stuck
    return now_;
  }

 private:
  struct Stage {
    Direction busy = Direction::none;
    int forwards = 0, backwards = 0, weights = 0;  // started; done
    int arrived = 0, returned = 0;                 // activations; gradients
    std::size_t layer = 0;                         // of the weight gradients that are next
  };

  void choose(int s) {
    Stage& stage = stages_[static_cast<std::size_t>(s)];
    if (stage.busy != Direction::none) return;
    const KnownPipeline& pipeline = *pipeline_;
    const bool last = s + 1 == pipeline.stages();
    const int deferred = pipeline.deferred[static_cast<std::size_t>(s)];
    PipelineProgress progress{.stage = s,
                              .stages = pipeline.stages(),
                              .microbatches = pipeline.microbatches(),
                              .limit = pipeline.slots,
                              .forwards = stage.forwards,
                              .backwards = stage.backwards,
                              .deferred_limit = deferred,
                              .weights = stage.weights};
    progress.forward_ready = stage.forwards < std::min(stage.arrived, stage.weights + pipeline.slots);
    progress.backward_ready =
        stage.backwards < (last ? stage.forwards : stage.returned) && stage.backwards - stage.weights < deferred;
    progress.weights_ready = stage.weights < stage.backwards;
    stage.busy = (*rule_)(progress);
    const auto times = [&](int m) -> const PassTimes& {
      return pipeline.times[static_cast<std::size_t>(s)][static_cast<std::size_t>(m)];
    };
    switch (stage.busy) {
      case Direction::none:
        return;
      case Direction::forward:
        return ends_.emplace(now_ + times(stage.forwards++).forward, s), void();
      case Direction::backward:
        return ends_.emplace(now_ + times(stage.backwards++).backward, s), void();
      case Direction::weights:
        return ends_.emplace(now_ + times(stage.weights).weights[stage.layer], s), void();
    }
  }

  void end(int s, std::vector<int>& touched) {
    Stage& stage = stages_[static_cast<std::size_t>(s)];
    touched.push_back(s);
    switch (std::exchange(stage.busy, Direction::none)) {
      case Direction::none:
        return;
      case Direction::forward:
        if (s + 1 == pipeline_->stages()) return;
        ++stages_[static_cast<std::size_t>(s) + 1].arrived;
        return touched.push_back(s + 1);
      case Direction::backward:
        if (s == 0) return;
        ++stages_[static_cast<std::size_t>(s) - 1].returned;
        return touched.push_back(s - 1);
      case Direction::weights:
        if (++stage.layer < pipeline_->times[static_cast<std::size_t>(s)].front().weights.size()) return;
        stage.layer = 0;
        ++stage.weights;
    }
  }

  using End = std::pair<double, int>;  // when, stage
  const KnownPipeline* pipeline_;
  const Rule* rule_;
  double now_ = 0;
  std::vector<Stage> stages_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

/// [stage][microbatch]: from the beginning of a piece of work to the end of the batch, by what has to follow: the rest
/// of its microbatch's way, and the same direction of later microbatches on its stage.
struct WaysToEnd {
  using Table = std::vector<std::vector<double>>;
  Table forward, backward, weights;

  explicit WaysToEnd(const KnownPipeline& pipeline) {
    const int p = pipeline.stages(), m = pipeline.microbatches();
    const Table zeros(static_cast<std::size_t>(p), std::vector<double>(static_cast<std::size_t>(m), 0.0));
    forward = backward = weights = zeros;
    const auto at = [](const Table& table, int s, int i) {
      const auto& row = table[static_cast<std::size_t>(s)];
      return static_cast<std::size_t>(i) < row.size() ? row[static_cast<std::size_t>(i)] : 0.0;
    };
    for (int i = m; i-- > 0;) {
      const auto times = [&](int s) -> const PassTimes& {
        return pipeline.times[static_cast<std::size_t>(s)][static_cast<std::size_t>(i)];
      };
      const auto set = [&](Table& table, int s, double value) {
        table[static_cast<std::size_t>(s)][static_cast<std::size_t>(i)] = value;
      };
      for (int s = 0; s < p; ++s) {
        set(weights, s, weights_of(times(s)) + at(weights, s, i + 1));
        const double left = s > 0 ? at(backward, s - 1, i) : 0;
        set(backward, s, times(s).backward + std::max({left, at(backward, s, i + 1), at(weights, s, i)}));
      }
      for (int s = p; s-- > 0;) {
        const double right = s + 1 < p ? at(forward, s + 1, i) : at(backward, s, i);
        set(forward, s, times(s).forward + std::max(right, at(forward, s, i + 1)));
      }
    }
  }
};

}  // namespace

double seconds_under(const KnownPipeline& pipeline, const Rule& rule) { return Simulation(pipeline, rule).run(); }

double clairvoyant_seconds(const KnownPipeline& pipeline, int draws, std::uint64_t seed) {
  double best = std::numeric_limits<double>::infinity();
  for (const Policy policy : {Policy::zero_bubble, Policy::zb_h1}) {
    best = std::min(best,
                    seconds_under(pipeline, [&](const PipelineProgress& p) { return next_direction(policy, p); }));
  }
  const WaysToEnd ways(pipeline);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> spread(-1.0, 1.0);
  double whole = 0;
  for (const auto& stage : ways.forward) whole = std::max(whole, stage.front());
  for (int draw = 0; draw < draws; ++draw) {
    // How much sooner than its way says each direction is chosen, and how far ahead stages may fill.
    std::array<double, 3> sooner{};
    int ahead = pipeline.slots;
    if (draw > 0) {
      for (double& each : sooner) each = spread(random) * whole / 2;
      ahead = std::uniform_int_distribution(1, 1 + pipeline.slots / 2)(random);
    }
    best = std::min(
        best, seconds_under(pipeline, [&](const PipelineProgress& p) {
          const auto s = static_cast<std::size_t>(p.stage);
          const bool fills = p.forwards - p.backwards < p.stages - p.stage - 1 + ahead;
          std::array<std::pair<double, Direction>, 3> all{
              std::pair{
                  p.backward_ready ? ways.backward[s][static_cast<std::size_t>(p.backwards)] + sooner[0] : -1e300,
                  Direction::backward},
              {p.forward_ready && fills ? ways.forward[s][static_cast<std::size_t>(p.forwards)] + sooner[1]
                                        : -1e300,
               Direction::forward},
              {p.weights_ready ? ways.weights[s][static_cast<std::size_t>(p.weights)] + sooner[2] : -1e300,
               Direction::weights}};
          const auto first = std::max_element(all.begin(), all.end(),
                                              [](const auto& a, const auto& b) { return a.first < b.first; });
          if (first->first > -1e300) return first->second;
          return p.forward_ready ? Direction::forward : Direction::none;
        }));
  }
  return best;
}

double least_seconds(const KnownPipeline& pipeline) {
  const int p = pipeline.stages(), m = pipeline.microbatches();
  double least = 0;
  for (int s = 0; s < p; ++s) {
    const auto of = [&](int stage, int i) -> const PassTimes& {
      return pipeline.times[static_cast<std::size_t>(stage)][static_cast<std::size_t>(i)];
    };
    double work = 0;
    for (int i = 0; i < m; ++i) work += of(s, i).forward + of(s, i).backward + weights_of(of(s, i));
    double head = 0;
    for (int before = 0; before < s; ++before) head += of(before, 0).forward;
    // The last gradient of the stage goes back through those before it, unless weight gradients come after it.
    double back = 0;
    for (int before = s; before-- > 0;) back += of(before, m - 1).backward;
    if (s > 0) back += weights_of(of(0, m - 1));
    double own_tail = 0;
    for (int i = 0; i < m; ++i) own_tail += weights_of(of(s, i));
    least = std::max(least, head + work + std::max(0.0, back - own_tail));
  }
  return least;
}

}  // namespace ranvier::bench
