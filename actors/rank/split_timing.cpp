#include "actors/rank/split_timing.hpp"

#include "runtime/base/arithmetic.hpp"

#include <array>
#include <utility>

namespace ranvier::actors {

namespace {

constexpr std::array directions = {&LayerSeconds::forward, &LayerSeconds::backward, &LayerSeconds::weights};

}  // namespace

bool SplitTiming::times() const {
  return plan_->options.grid.g_inter > 1 && steps_ > 1 && steps_ <= 1 + plan_->options.rebalance_steps;
}

void SplitTiming::begin_step() {
  ++steps_;
  if (times()) (void)stage_->timer().take();
}

void SplitTiming::end_step() {
  if (times()) timed_.push_back(stage_->timer().take());
}

std::size_t SplitTiming::numbers(std::int64_t step) const {
  const TrainerOptions& options = plan_->options;
  const bool last = steps_ == 1 + options.rebalance_steps || step == options.steps;
  return times() && last ? plan_->architecture->layers.size() * directions.size() : 0;
}

void SplitTiming::add_to(std::span<double> numbers) {
  std::size_t place = 0;  // among the rank's layers
  for (const models::LayerRange& slice : plan_->layers) {
    for (std::size_t l = slice.begin; l < slice.end; ++l, ++place) {
      for (std::size_t d = 0; d < directions.size(); ++d) {
        std::vector<double> seconds;
        for (const auto& step : timed_) seconds.push_back(step[place].*directions[d]);
        numbers[l * directions.size() + d] = runtime::lower_median(std::move(seconds)) / plan_->options.grid.g_data;
      }
    }
  }
  timed_.clear();
  const auto& fault = plan_->options.fault;
  const bool slow = fault && fault->kind == TrainerOptions::Fault::Kind::slow && fault->rank == plan_->rank;
  if (!slow) stage_->stop_timer();
}

SplitAdvice SplitTiming::advice(std::span<const double> numbers) const {
  const TrainerOptions& options = plan_->options;
  std::vector<LayerSeconds> seconds(plan_->architecture->layers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    seconds[i / directions.size()].*directions[i % directions.size()] = numbers[i];
  const SliceMap map = slice_map(options);
  return advise_split(seconds, *plan_->architecture,
                      slice_layers(*plan_->architecture, map, options.layers_per_stage), map,
                      microbatches_of(options));
}

}  // namespace ranvier::actors
