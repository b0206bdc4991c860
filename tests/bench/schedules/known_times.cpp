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
using actors::SliceMap;

namespace {

double weights_of(const PassTimes& times) {
  return std::accumulate(times.weights.begin(), times.weights.end(), 0.0);
}

double all_of(const PassTimes& times) { return times.forward + times.backward + weights_of(times); }

/// Simulates stages in the order in which they become free or receive a message.
class Simulation {
 public:
  Simulation(const KnownPipeline& pipeline, const Rule& rule)
      : pipeline_(&pipeline), map_(pipeline.map), rule_(&rule) {
    const auto chunks = static_cast<std::size_t>(map_.chunks);
    for (int s = 0; s < map_.stages; ++s) {
      Stage& stage = stages_.emplace_back();
      stage.view.chunks.resize(chunks);
      stage.view.progress = {
          .stage = s, .stages = map_.stages, .chunks = map_.chunks, .microbatches = pipeline.microbatches()};
      const auto& slots = pipeline.slots[static_cast<std::size_t>(s)];
      const auto& deferred = pipeline.deferred[static_cast<std::size_t>(s)];
      stage.view.progress.limit = slots.front();
      stage.view.progress.deferred_limit = *std::max_element(deferred.begin(), deferred.end());
    }
    stages_.front().view.chunks.front().arrived = pipeline.microbatches();
  }

  double run() {
    for (int s = 0; s < map_.stages; ++s) choose(s);
    while (!ends_.empty()) {
      now_ = ends_.top().first;
      // All work that ends now is handled before any choice.
      std::vector<int> touched;
      while (!ends_.empty() && ends_.top().first == now_) {
        end(ends_.top().second, touched);
        ends_.pop();
      }
      for (const int s : touched) choose(s);
    }
    for (const Stage& stage : stages_) {
      for (const ChunkState& chunk : stage.view.chunks)
        if (chunk.weights < pipeline_->microbatches()) return std::numeric_limits<double>::infinity();  // stuck
    }
    return now_;
  }

 private:
  struct Stage {
    Choice busy;
    std::queue<int> waiting;  // chunks with deferred weight gradients
    StageState view;          // state of this stage
  };

  const PassTimes& times(int s, int chunk, int microbatch) const {
    return pipeline_
        ->times[static_cast<std::size_t>(map_.slice_of(s, chunk))][static_cast<std::size_t>(microbatch)];
  }

  void look(int s) {
    Stage& stage = stages_[static_cast<std::size_t>(s)];
    PipelineProgress& all = stage.view.progress;
    all.forwards = all.backwards = all.weights = 0;
    for (int c = 0; c < map_.chunks; ++c) {
      const auto place = static_cast<std::size_t>(c);
      ChunkState& chunk = stage.view.chunks[place];
      const int slots = pipeline_->slots[static_cast<std::size_t>(s)][place];
      const int deferred = pipeline_->deferred[static_cast<std::size_t>(s)][place];
      const bool last = map_.slice_of(s, c) + 1 == map_.slices();
      const bool has_place = chunk.backwards - chunk.weights < deferred;
      chunk.forward_ready = chunk.forwards < std::min(chunk.arrived, chunk.weights + slots);
      chunk.backward_ready = chunk.backwards < (last ? chunk.forwards : chunk.returned) && has_place;
      chunk.weights_ready = chunk.weights < chunk.through;
      all.forwards += chunk.forwards;
      all.backwards += chunk.backwards;
      all.weights += chunk.weights;
    }
    stage.view.waits_longest = stage.waiting.empty() ? 0 : stage.waiting.front();
  }

  void choose(int s) {
    Stage& stage = stages_[static_cast<std::size_t>(s)];
    if (stage.busy.direction != Direction::none) return;
    look(s);
    stage.busy = (*rule_)(stage.view);
    ChunkState& chunk = stage.view.chunks[static_cast<std::size_t>(stage.busy.chunk)];
    const int c = stage.busy.chunk;
    switch (stage.busy.direction) {
      case Direction::none:
        return;
      case Direction::forward:
        return ends_.emplace(now_ + times(s, c, chunk.forwards++).forward, s), void();
      case Direction::backward:
        return ends_.emplace(now_ + times(s, c, chunk.backwards++).backward, s), void();
      case Direction::weights:
        return ends_.emplace(now_ + times(s, c, chunk.weights).weights[chunk.layer], s), void();
    }
  }

  void end(int s, std::vector<int>& touched) {
    Stage& stage = stages_[static_cast<std::size_t>(s)];
    touched.push_back(s);
    const Choice was = std::exchange(stage.busy, Choice{});
    ChunkState& chunk = stage.view.chunks[static_cast<std::size_t>(was.chunk)];
    const int slice = map_.slice_of(s, was.chunk);
    const auto chunk_of = [&](int other) -> ChunkState& {
      touched.push_back(map_.stage_of(other));
      return stages_[static_cast<std::size_t>(map_.stage_of(other))]
          .view.chunks[static_cast<std::size_t>(map_.chunk_of(other))];
    };
    switch (was.direction) {
      case Direction::none:
        return;
      case Direction::forward:
        if (slice + 1 < map_.slices()) ++chunk_of(slice + 1).arrived;
        return;
      case Direction::backward:
        ++chunk.through;
        stage.waiting.push(was.chunk);
        if (slice > 0) ++chunk_of(slice - 1).returned;
        return;
      case Direction::weights:
        if (++chunk.layer < times(s, was.chunk, 0).weights.size()) return;
        chunk.layer = 0;
        ++chunk.weights;
        stage.waiting.pop();  // choices other than the first one do not use this queue
    }
  }

  using End = std::pair<double, int>;  // time, stage
  const KnownPipeline* pipeline_;
  SliceMap map_;
  const Rule* rule_;
  double now_ = 0;
  std::vector<Stage> stages_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

/// [slice][microbatch]: longest time from the start of a work item to the end of the batch. It includes the rest of the
/// microbatch's path, and the same direction of later microbatches in the slice.
struct WaysToEnd {
  using Table = std::vector<std::vector<double>>;
  Table forward, backward, weights;

  explicit WaysToEnd(const KnownPipeline& pipeline) {
    const int k = pipeline.map.slices(), m = pipeline.microbatches();
    const Table zeros(static_cast<std::size_t>(k), std::vector<double>(static_cast<std::size_t>(m), 0.0));
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
      for (int s = 0; s < k; ++s) {
        set(weights, s, weights_of(times(s)) + at(weights, s, i + 1));
        const double left = s > 0 ? at(backward, s - 1, i) : 0;
        set(backward, s, times(s).backward + std::max({left, at(backward, s, i + 1), at(weights, s, i)}));
      }
      for (int s = k; s-- > 0;) {
        const double right = s + 1 < k ? at(forward, s + 1, i) : at(backward, s, i);
        set(forward, s, times(s).forward + std::max(right, at(forward, s, i + 1)));
      }
    }
  }
};

/// Chooses the longest path to the end, with a bonus per direction and a limit of forward passes ahead of 1F1B.
Rule longest_way_first(const KnownPipeline& pipeline, const WaysToEnd& ways, const std::array<double, 3>& sooner,
                       int ahead) {
  return [map = pipeline.map, &ways, sooner, ahead](const StageState& stage) {
    const PipelineProgress& p = stage.progress;
    const int warm_up =
        map.chunks == 1 ? map.stages - p.stage - 1 : (map.chunks - 1) * map.stages + 2 * (map.stages - p.stage - 1);
    const bool fills = p.forwards - p.backwards < warm_up + ahead;
    double longest = -1e300;
    Choice first, forward;
    for (int c = 0; c < map.chunks; ++c) {
      const ChunkState& chunk = stage.chunks[static_cast<std::size_t>(c)];
      const auto slice = static_cast<std::size_t>(map.slice_of(p.stage, c));
      const auto consider = [&](bool ready, const WaysToEnd::Table& way, int microbatch, double by,
                                Direction direction) {
        if (!ready) return;
        const double length = way[slice][static_cast<std::size_t>(microbatch)] + by;
        if (length <= longest) return;
        longest = length;
        first = {direction, c};
      };
      consider(chunk.backward_ready, ways.backward, chunk.backwards, sooner[0], Direction::backward);
      consider(chunk.forward_ready && fills, ways.forward, chunk.forwards, sooner[1], Direction::forward);
      consider(chunk.weights_ready, ways.weights, chunk.weights, sooner[2], Direction::weights);
      if (chunk.forward_ready && forward.direction == Direction::none) forward = {Direction::forward, c};
    }
    return first.direction == Direction::none ? forward : first;
  };
}

}  // namespace

Rule rule_of(Policy policy, const KnownPipeline& pipeline) {
  const SliceMap map = pipeline.map;
  const actors::SliceOrder order{map.chunks, pipeline.microbatches(),
                                 actors::chunk_group(policy, map.stages, pipeline.slots.front().front())};
  return [policy, map, order](const StageState& stage) {
    const auto next = [&](bool forward) {
      std::vector<actors::NextPass> passes;
      for (const ChunkState& chunk : stage.chunks)
        passes.push_back(forward ? actors::NextPass{chunk.forwards, chunk.forward_ready}
                                 : actors::NextPass{chunk.backwards, chunk.backward_ready});
      return actors::next_chunk(order, forward, passes, !actors::messages_decide(policy));
    };
    const auto forward = next(true), backward = next(false);
    PipelineProgress progress = stage.progress;
    progress.forward_ready = forward.has_value();
    progress.backward_ready = backward.has_value();
    progress.weights_ready = stage.chunks[static_cast<std::size_t>(stage.waits_longest)].weights_ready;
    switch (const Direction direction = next_direction(policy, progress)) {
      case Direction::none:
        break;
      case Direction::forward:
        return Choice{direction, *forward};
      case Direction::backward:
        return Choice{direction, *backward};
      case Direction::weights:
        return Choice{direction, stage.waits_longest};
    }
    return Choice{};
  };
}

double seconds_under(const KnownPipeline& pipeline, const Rule& rule) { return Simulation(pipeline, rule).run(); }

double clairvoyant_seconds(const KnownPipeline& pipeline, int draws, std::uint64_t seed) {
  double best = seconds_under(pipeline, rule_of(Policy::zero_bubble, pipeline));
  if (pipeline.map.chunks == 1) best = std::min(best, seconds_under(pipeline, rule_of(Policy::zb_h1, pipeline)));
  const WaysToEnd ways(pipeline);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> spread(-1.0, 1.0);
  double whole = 0;
  for (const auto& slice : ways.forward) whole = std::max(whole, slice.front());
  const int slots = std::accumulate(pipeline.slots.front().begin(), pipeline.slots.front().end(), 0);
  for (int draw = 0; draw < draws; ++draw) {
    // Bonus per direction, and number of forward passes ahead.
    std::array<double, 3> sooner{};
    int ahead = slots;
    if (draw > 0) {
      for (double& each : sooner) each = spread(random) * whole / 2;
      ahead = std::uniform_int_distribution(1, 1 + slots / 2)(random);
    }
    best = std::min(best, seconds_under(pipeline, longest_way_first(pipeline, ways, sooner, ahead)));
  }
  return best;
}

double least_seconds(const KnownPipeline& pipeline) {
  const SliceMap map = pipeline.map;
  const int m = pipeline.microbatches();
  const auto of = [&](int slice, int i) -> const PassTimes& {
    return pipeline.times[static_cast<std::size_t>(slice)][static_cast<std::size_t>(i)];
  };
  double least = 0;
  for (int s = 0; s < map.stages; ++s) {
    double work = 0, own_tail = 0;
    for (int chunk = 0; chunk < map.chunks; ++chunk) {
      for (int i = 0; i < m; ++i) {
        work += all_of(of(map.slice_of(s, chunk), i));
        own_tail += weights_of(of(map.slice_of(s, chunk), i));
      }
    }
    double head = 0;
    for (int before = 0; before < s; ++before) head += of(before, 0).forward;
    // The stage's last gradient passes through the stages before it, unless weight gradients follow it.
    double back = 0;
    for (int before = s; before-- > 0;) back += of(before, m - 1).backward;
    if (s > 0) back += weights_of(of(0, m - 1));
    least = std::max(least, head + work + std::max(0.0, back - own_tail));
  }
  return least;
}

}  // namespace ranvier::bench
