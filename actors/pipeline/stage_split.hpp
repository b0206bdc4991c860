// How layers would better be split into stages, by what they took. Pure; any thread.
//
//   stage: speed of its ranks × what its layers take on a rank of speed 1
//
// Layers that are alike take the same on ranks of the same speed. So where several stages have layers of one kind, what
// these take says how fast the stages' ranks are; of a stage that shares none with others nothing is known, and it
// counts as fast as the rest. A stage with several slices of the layers takes what all of them take.
#pragma once

#include "actors/pipeline/layer_timer.hpp"
#include "actors/pipeline/slice_map.hpp"
#include "models/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::actors {

/// What the passes of a row's batch take at least, with `stage_seconds` for each stage's part of all its
/// `microbatches`: the slowest stage computes without a gap, once the first microbatch came to it, and the last one
/// passes through the others.
[[nodiscard]] double row_seconds(const std::vector<double>& stage_seconds, int microbatches);

/// The split whose slowest stage is the fastest, and among those the one with the most even stages. `seconds[l]`: what
/// layer l takes where ranks have speed 1; `slowness[s]`: how many times as long it takes on stage s.
[[nodiscard]] std::vector<models::LayerRange> fastest_split(const std::vector<double>& seconds,
                                                            const std::vector<double>& slowness);

/// How many times as long layers take on each stage, 1 on average, by layers of the same kind in all of its `slices`.
[[nodiscard]] std::vector<double> slowness_of_stages(const std::vector<double>& seconds,
                                                     const std::vector<int>& kinds,
                                                     const std::vector<models::LayerRange>& slices,
                                                     const SliceMap& map);

/// Of each layer a number that layers which compute and hold the same have in common.
[[nodiscard]] std::vector<int> kinds_of_layers(const models::Architecture& architecture);

/// A measured split, and the one that is better.
struct SplitAdvice {
  std::vector<LayerSeconds> measured;        ///< by stage, of a step
  std::vector<int> layers_now, layers_then;  ///< by slice
  std::vector<double> seconds_then;          ///< by stage
  double row_seconds_now = 0, row_seconds_then = 0;

  /// Whether changing the split is worth a restart.
  [[nodiscard]] bool helps() const {
    return layers_then != layers_now && row_seconds_then < 0.99 * row_seconds_now;
  }
};

/// `seconds`: of a step, by layer, as measured with those slices. Of several per stage the better ones are those of
/// balance_slices(), a good split, where of one they are the fastest_split().
[[nodiscard]] SplitAdvice advise_split(const std::vector<LayerSeconds>& seconds, const std::vector<int>& kinds,
                                       const std::vector<models::LayerRange>& slices, const SliceMap& map,
                                       int microbatches);

/// What was measured and what would be better, as the flag that says so, for people. `step_now`, `step_then`: seconds.
[[nodiscard]] std::string describe(const SplitAdvice& advice, double step_now, double step_then);

}  // namespace ranvier::actors
