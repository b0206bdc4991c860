#include "actors/schedule/layer_timer.hpp"

#include <thread>
#include <utility>

namespace ranvier::actors {

LayerTimer::LayerTimer(std::size_t layers, const runtime::Trace& trace)
    : trace_(&trace), sums_(std::make_shared<std::vector<LayerSeconds>>(layers)) {}

void LayerTimer::time(runtime::StreamView stream, std::size_t layer, double LayerSeconds::* direction,
                      const std::function<void()>& queue) {
  auto began = std::make_shared<runtime::Duration>();
  stream.call_back([trace = trace_, began] { *began = trace->now(); });
  queue();
  if (times_ > 1)
    stream.launch([trace = trace_, began, times = times_](runtime::ComputePool&) {
      std::this_thread::sleep_for(std::chrono::duration<double>(trace->now() - *began) * (times - 1));
    });
  stream.call_back([trace = trace_, began, sums = sums_, layer, direction] {
    (*sums)[layer].*direction += std::chrono::duration<double>(trace->now() - *began).count();
  });
}

std::vector<LayerSeconds> LayerTimer::take() {
  return std::exchange(*sums_, std::vector<LayerSeconds>(sums_->size()));
}

}  // namespace ranvier::actors
