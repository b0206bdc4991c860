// How long the stages of a pipeline compute, by what their layers launch and a profile's times for that. Nothing is
// computed: layers queue their work on a stream that adds up what it costs. One thread at a time.
#pragma once

#include "models/architecture.hpp"
#include "models/stage_layout.hpp"
#include "runtime/work_cost.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

namespace ranvier::apps {

/// Seconds that a stream is busy with a call of a layer, when nothing else runs on the device.
class LayerTimes {
 public:
  /// `classes`: of every layer of the architecture; those of one class queue the same work. `apart`: the device's
  /// memory is not the host's. Architecture and costs outlive this.
  LayerTimes(const models::Architecture& architecture, std::vector<int> classes, const runtime::CostModel& costs,
             bool apart, int threads);
  ~LayerTimes();
  LayerTimes(const LayerTimes&) = delete;
  LayerTimes& operator=(const LayerTimes&) = delete;

  using Kind = models::StageLayout::PassStep::Kind;
  [[nodiscard]] double seconds(std::size_t layer, Kind kind, std::size_t part, int samples,
                               models::SavedActivations saved);

 private:
  class Recorder;

  const models::Architecture* architecture_;
  std::vector<int> classes_;
  std::unique_ptr<Recorder> recorder_;
  std::map<std::tuple<int, Kind, std::size_t, int, models::SavedActivations>, double> known_;
};

/// Of one microbatch.
struct PassSeconds {
  double forward = 0;
  double backward = 0;  ///< with what is computed again, if nothing of that was kept by chance
  double tail = 0;      ///< of the backward pass, after the gradient of the input can leave
  int tails = 1;        ///< that can come after the last gradient of the input has left
  bool waits = false;   ///< they may also come after passes of other slices
};
[[nodiscard]] PassSeconds pass_seconds(const models::StageLayout& layout, std::size_t first_layer,
                                       LayerTimes& times, int samples);

/// Less than a step of a pipeline takes: `whole[k]` for each of `microbatches` of a row in slice k, and `last[k]` for
/// the last one of them, which may be shorter. The first microbatch has to come to a stage, the gradient of the last
/// one to go back from it, and in between the stage computes all of them in each of its `chunks` slices, which are
/// those of actors::SliceMap.
[[nodiscard]] double pipeline_seconds(std::span<const PassSeconds> whole, std::span<const PassSeconds> last,
                                      int microbatches, int chunks = 1);

}  // namespace ranvier::apps
