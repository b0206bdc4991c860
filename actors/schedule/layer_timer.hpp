// Measures the time of each layer on the stage's stream, by direction. Loop thread only; the stream may outlive it.
#pragma once

#include "runtime/device/stream.hpp"
#include "runtime/trace/trace.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace ranvier::actors {

struct LayerSeconds {
  double forward = 0;
  double backward = 0;  ///< input gradients and recomputation
  double weights = 0;   ///< weight gradients, deferred or not

  [[nodiscard]] double all() const noexcept { return forward + backward + weights; }
  LayerSeconds& operator+=(const LayerSeconds& other) noexcept {
    forward += other.forward;
    backward += other.backward;
    weights += other.weights;
    return *this;
  }
};

class LayerTimer {
 public:
  /// Uses the trace's clock; the trace must outlive the streams' work.
  LayerTimer(std::size_t layers, const runtime::Trace& trace);

  /// Runs `queue`, which queues work of `layer` on the stream. The stream then adds its duration to `direction`.
  void time(runtime::StreamView stream, std::size_t layer, double LayerSeconds::* direction,
            const std::function<void()>& queue);
  /// For tests: following work takes `times` as long, because the stream pauses after it. Only for devices with
  /// launch().
  void slow_down(double times) { times_ = times; }

  /// Times by layer of all work since the last call. The stream must have finished it.
  [[nodiscard]] std::vector<LayerSeconds> take();

 private:
  const runtime::Trace* trace_;
  double times_ = 1;
  std::shared_ptr<std::vector<LayerSeconds>> sums_;  // written on the stream
};

}  // namespace ranvier::actors
