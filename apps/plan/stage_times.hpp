// Compute times of pipeline stages, from the work that layers launch and a profile's times for it. Layers queue their
// work on a stream that only records costs. One thread at a time.
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/stage_layout.hpp"
#include "runtime/simulation/phantom_device.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace ranvier::apps {

/// Seconds that one call of a layer keeps a stream busy on an otherwise idle device.
class LayerTimes {
 public:
  /// `classes`: class of every layer; layers of one class queue the same work. `apart`: the device has its own memory.
  /// Architecture and costs outlive this.
  LayerTimes(const models::Architecture& architecture, std::vector<int> classes, const runtime::CostModel& costs,
             bool apart, int threads);

  using Kind = models::StageLayout::PassStep::Kind;
  [[nodiscard]] double seconds(std::size_t layer, Kind kind, std::size_t part, int samples,
                               models::SavedActivations saved);

 private:
  /// Queues one call of the layer.
  void queue(runtime::StreamView stream, std::size_t layer, Kind kind, std::size_t part, int samples,
             models::SavedActivations saved, bool accumulate);

  const models::Architecture* architecture_;
  std::vector<int> classes_;
  const runtime::CostModel* costs_;
  runtime::RecordedDevice device_;
  runtime::PhantomSpace space_;
  std::map<std::tuple<int, Kind, std::size_t, int, models::SavedActivations>, double> known_;
};

/// Compute times of one slice and microbatch, in seconds.
struct PassSeconds {
  double forward = 0;
  double backward = 0;  ///< backward pass with recomputation, unless its result is still in the buffer
  double tail = 0;      ///< end of the backward pass, after the input gradient can be sent
  int tails = 1;        ///< number of tails that can follow the last input gradient
  bool waits = false;   ///< tails may also follow passes of other slices
};
[[nodiscard]] PassSeconds pass_seconds(const models::StageLayout& layout, std::size_t first_layer,
                                       LayerTimes& times, int samples);

/// Lower bound of a pipeline's step time. `whole[k]`: times of slice k per microbatch; `last[k]`: the same for the last
/// microbatch, which may be smaller. For each stage, the bound adds three times: until the first microbatch arrives,
/// all passes of its `chunks` slices (actors::SliceMap), and the way back of the last gradient.
[[nodiscard]] double pipeline_seconds(std::span<const PassSeconds> whole, std::span<const PassSeconds> last,
                                      int microbatches, int chunks = 1);

}  // namespace ranvier::apps
