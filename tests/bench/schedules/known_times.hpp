// A pipeline whose durations are all known, in a simulation of its own: stages, messages that take no time, slots and
// deferred places as stages of actors have them. What the best order of its work would be that somebody who knows all
// durations beforehand can find. One thread.
#pragma once

#include "actors/pipeline/policy.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ranvier::bench {

/// Of one stage and microbatch: a forward pass, its input gradients, and the weight gradients of each of its layers.
struct PassTimes {
  double forward = 0, backward = 0;
  std::vector<double> weights;  ///< in the order in which they are computed
};

struct KnownPipeline {
  std::vector<std::vector<PassTimes>> times;  ///< [stage][microbatch]
  int slots = 1;                              ///< microbatches in flight on each stage
  std::vector<int> deferred;                  ///< [stage]: microbatches whose weight gradients may wait

  [[nodiscard]] int stages() const { return static_cast<int>(times.size()); }
  [[nodiscard]] int microbatches() const { return static_cast<int>(times.front().size()); }
};

/// What a stage does next, once it is free; Direction::none: wait until something changes.
using Rule = std::function<actors::Direction(const actors::PipelineProgress&)>;

/// Seconds until all stages have done all of their work. Each direction goes in the order of the microbatches. Weight
/// gradients are chosen layer by layer.
[[nodiscard]] double seconds_under(const KnownPipeline& pipeline, const Rule& rule);

/// List scheduling: of what a stage can do, first what has the longest way to the end, by the durations of all that
/// has to follow; the best of that, of the same with weights on the three directions drawn at random (by `seed`), and
/// of the policies' own orders.
[[nodiscard]] double clairvoyant_seconds(const KnownPipeline& pipeline, int draws, std::uint64_t seed);

/// What no order can beat: a stage's own work, after the first activation can come and before the last gradient has
/// gone back.
[[nodiscard]] double least_seconds(const KnownPipeline& pipeline);

}  // namespace ranvier::bench
