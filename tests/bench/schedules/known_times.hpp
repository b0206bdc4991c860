// Simulation of a pipeline with known durations: stages of one or several slices, messages without latency, slots and
// deferred slots as in actors. Finds the best schedule for known durations, a reference for the policies. One thread.
#pragma once

#include "actors/schedule/policy.hpp"
#include "actors/schedule/slice_balance.hpp"
#include "actors/schedule/slice_order.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ranvier::bench {

/// Durations of one slice and microbatch: forward pass, input gradients, and weight gradients per layer.
struct PassTimes {
  double forward = 0, backward = 0;
  std::vector<double> weights;  ///< weight gradients per layer, in the order of computation
};

struct KnownPipeline {
  actors::SliceMap map;
  std::vector<std::vector<PassTimes>> times;  ///< durations, [slice][microbatch]
  std::vector<std::vector<int>> slots;        ///< most microbatches in flight, [stage][chunk]
  std::vector<std::vector<int>> deferred;     ///< most microbatches with deferred weight gradients, [stage][chunk]

  [[nodiscard]] int microbatches() const { return static_cast<int>(times.front().size()); }
};

/// Progress of a chunk of a stage, and its ready work.
struct ChunkState {
  int forwards = 0, backwards = 0;  ///< passes started
  int weights = 0;                  ///< weight gradients done
  bool forward_ready = false, backward_ready = false, weights_ready = false;
  int arrived = 0, returned = 0;  ///< activations and gradients received
  int through = 0;                ///< backward passes done
  std::size_t layer = 0;          ///< layer of the next weight gradients
};

struct StageState {
  actors::PipelineProgress progress;  ///< progress over all chunks, without ready work
  std::vector<ChunkState> chunks;
  int waits_longest = 0;  ///< chunk whose weight gradients have waited longest
};

struct Choice {
  actors::Direction direction = actors::Direction::none;  ///< next direction; none: wait for a change
  int chunk = 0;
};

/// Chooses the next work of a free stage.
using Rule = std::function<Choice(const StageState&)>;

/// Choice of a stage of actors under a policy with deferred weight gradients.
[[nodiscard]] Rule rule_of(actors::Policy policy, const KnownPipeline& pipeline);

/// Seconds until all stages have finished. In each chunk, each direction processes microbatches in order. Weight
/// gradients are chosen layer by layer.
[[nodiscard]] double seconds_under(const KnownPipeline& pipeline, const Rule& rule);

/// Seconds of the best schedule. Candidates: list scheduling, which runs the work with the longest path to the end
/// first; the same with random bonuses on the three directions (`seed`); the policies' schedules.
[[nodiscard]] double clairvoyant_seconds(const KnownPipeline& pipeline, int draws, std::uint64_t seed);

/// Lower bound of any schedule: a stage's work, plus the time before the first activation and after the last gradient.
[[nodiscard]] double least_seconds(const KnownPipeline& pipeline);

}  // namespace ranvier::bench
