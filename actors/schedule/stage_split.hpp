// Computes a better split of layers into stages from measured layer times. Pure; any thread.
//
//   time of a stage = slowdown of its ranks × time of its layers at slowdown 1
//
// Layers of one kind on several stages give the stages' relative slowdown. A stage without such layers counts as
// average. The time of a stage includes all of its slices.
#pragma once

#include "actors/schedule/layer_timer.hpp"
#include "actors/schedule/slice_balance.hpp"
#include "models/core/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::actors {

/// Minimum time of a row's batch: the slowest stage computes without gaps, and one microbatch passes through all other
/// stages. `stage_seconds`: total time of all `microbatches` by stage.
[[nodiscard]] double row_seconds(const std::vector<double>& stage_seconds, int microbatches);

/// Split that minimizes the time of the slowest stage; ties: the most even one. `seconds[l]`: time of layer l at
/// slowdown 1; `slowness[s]`: slowdown factor of stage s.
[[nodiscard]] std::vector<models::LayerRange> fastest_split(const std::vector<double>& seconds,
                                                            const std::vector<double>& slowness);

/// Slowdown factor by stage, 1 on average, estimated from layers of the same kind. `kinds`: kind by layer.
[[nodiscard]] std::vector<double> slowness_of_stages(const std::vector<double>& seconds,
                                                     const std::vector<int>& kinds,
                                                     const std::vector<models::LayerRange>& slices,
                                                     const SliceMap& map);

/// A measured split, and the one that is better.
struct SplitAdvice {
  std::vector<LayerSeconds> measured;        ///< time per step, by stage
  std::vector<int> layers_now, layers_then;  ///< by slice
  std::vector<double> seconds_then;          ///< by stage
  double row_seconds_now = 0, row_seconds_then = 0;

  /// Returns whether the better split saves more than 1 %.
  [[nodiscard]] bool helps() const {
    return layers_then != layers_now && row_seconds_then < 0.99 * row_seconds_now;
  }
};

/// `seconds`: measured time per step by layer, with these slices. The better split is fastest_split() for one slice per
/// stage, and balance_slices(), a good but not optimal one, for several.
[[nodiscard]] SplitAdvice advise_split(const std::vector<LayerSeconds>& seconds,
                                       const models::Architecture& architecture,
                                       const std::vector<models::LayerRange>& slices, const SliceMap& map,
                                       int microbatches);

/// Message with measured times and the better `layers_per_stage`. `step_now`, `step_then`: step times in seconds.
[[nodiscard]] std::string describe(const SplitAdvice& advice, double step_now, double step_then);

}  // namespace ranvier::actors
