// A pipeline whose durations are all known, in a simulation of its own: stages of one or several slices, messages that
// take no time, slots and deferred places as stages of actors have them. What the best order of its work would be that
// somebody who knows all durations beforehand can find. One thread.
#pragma once

#include "actors/pipeline/slice_order.hpp"
#include "actors/pipeline/policy.hpp"
#include "actors/pipeline/slice_map.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ranvier::bench {

/// Of one slice and microbatch: a forward pass, its input gradients, and the weight gradients of each of its layers.
struct PassTimes {
  double forward = 0, backward = 0;
  std::vector<double> weights;  ///< in the order in which they are computed
};

struct KnownPipeline {
  actors::SliceMap map;
  std::vector<std::vector<PassTimes>> times;  ///< [slice][microbatch]
  std::vector<std::vector<int>> slots;        ///< [stage][chunk]: microbatches in flight
  std::vector<std::vector<int>> deferred;     ///< likewise: microbatches whose weight gradients may wait

  [[nodiscard]] int microbatches() const { return static_cast<int>(times.front().size()); }
};

/// How far a chunk of a stage is, and what it could do now.
struct ChunkState {
  int forwards = 0, backwards = 0;  ///< started
  int weights = 0;                  ///< done
  bool forward_ready = false, backward_ready = false, weights_ready = false;
};

struct StageState {
  actors::PipelineProgress progress;  ///< over all chunks; nothing is ready
  std::vector<ChunkState> chunks;
  int waits_longest = 0;  ///< the chunk whose weight gradients do
};

struct Choice {
  actors::Direction direction = actors::Direction::none;  ///< none: wait until something changes
  int chunk = 0;
};

/// What a stage does next, once it is free.
using Rule = std::function<Choice(const StageState&)>;

/// As a stage of actors chooses under a policy where weight gradients wait.
[[nodiscard]] Rule rule_of(actors::Policy policy, const KnownPipeline& pipeline);

/// Seconds until all stages have done all of their work. In each chunk, each direction goes in the order of the
/// microbatches. Weight gradients are chosen layer by layer.
[[nodiscard]] double seconds_under(const KnownPipeline& pipeline, const Rule& rule);

/// List scheduling: of what a stage can do, first what has the longest way to the end, by the durations of all that
/// has to follow; the best of that, of the same with weights on the three directions drawn at random (by `seed`), and
/// of the policies' own orders.
[[nodiscard]] double clairvoyant_seconds(const KnownPipeline& pipeline, int draws, std::uint64_t seed);

/// What no order can beat: a stage's own work, after the first activation can come and before the last gradient has
/// gone back.
[[nodiscard]] double least_seconds(const KnownPipeline& pipeline);

}  // namespace ranvier::bench
