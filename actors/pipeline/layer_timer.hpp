// What each layer of a stage takes on the stage's stream, by direction. Loop thread only; the stream may outlive it.
#pragma once

#include "actors/pipeline/policy.hpp"
#include "runtime/stream.hpp"
#include "runtime/trace.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace ranvier::actors {

struct LayerSeconds {
  double forward = 0;
  double backward = 0;  ///< input gradients, and what is computed again for them
  double weights = 0;   ///< weight gradients, whether they wait or not

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
  /// By the trace's clock; the trace outlives the streams' work.
  LayerTimer(std::size_t layers, const runtime::Trace& trace);

  /// Runs `queue`, which queues work of `layer` on the stream, and has the stream add what that takes to `direction`.
  void time(runtime::StreamView stream, std::size_t layer, double LayerSeconds::* direction,
            const std::function<void()>& queue);
  /// From here on timed work takes so many times as long: the stream stands still after it. Devices that launch() work
  /// only; test only.
  void slow_down(double times) { times_ = times; }

  /// Of all work since the last call, by layer, once the stream has done it.
  [[nodiscard]] std::vector<LayerSeconds> take();

 private:
  const runtime::Trace* trace_;
  double times_ = 1;
  std::shared_ptr<std::vector<LayerSeconds>> sums_;  // written on the stream
};

}  // namespace ranvier::actors
