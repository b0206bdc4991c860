#include "apps/plan/stage_times.hpp"

#include "models/core/pass_order.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ranvier::apps {

using models::StageLayout;
LayerTimes::LayerTimes(const models::Architecture& architecture, std::vector<int> classes,
                       const runtime::CostModel& costs, bool apart, int threads)
    : architecture_(&architecture),
      classes_(std::move(classes)),
      costs_(&costs),
      device_{.apart = apart, .threads = threads} {
  expect(classes_.size() == architecture.layers.size(), "{} layers have {} classes", architecture.layers.size(),
         classes_.size());
}

double LayerTimes::seconds(std::size_t layer, Kind kind, std::size_t part, int samples,
                           models::SavedActivations saved) {
  const auto [place, is_new] = known_.try_emplace({classes_[layer], kind, part, samples, saved});
  if (!is_new) return place->second;
  const auto seconds_of = [&](bool accumulate) {
    double sum = 0;
    for (const runtime::WorkCost& cost : runtime::costs_of(device_, [&](runtime::StreamView stream) {
           queue(stream, layer, kind, part, samples, saved, accumulate);
         }))
      sum += std::chrono::duration<double>(costs_->duration(cost)).count();
    return sum;
  };
  place->second = seconds_of(true);
  // The first microbatch of a step overwrites gradients.
  if (kind == Kind::backward_weight) place->second = std::min(place->second, seconds_of(false));
  return place->second;
}

void LayerTimes::queue(runtime::StreamView stream, std::size_t layer, Kind kind, std::size_t part, int samples,
                       models::SavedActivations saved, bool accumulate) {
  models::Layer& code = *architecture_->layers[layer];
  // Every array gets an address on its own page of memory that is never touched.
  constexpr std::size_t apart = runtime::PhantomSpace::unreachable_bytes / 16;
  std::byte* at = space_.unreachable();
  const auto next = [&at] { return std::exchange(at, at + apart); };
  std::vector<const std::byte*> parameters;
  std::vector<std::byte*> gradients;
  std::byte* const weights = next();
  std::byte* const sums = next();
  std::size_t offset = 0;
  for (const models::UnitSpec& unit : code.units()) {
    parameters.push_back(weights + offset);
    gradients.push_back(unit.trained ? sums + offset : nullptr);
    offset += runtime::round_up(unit.elements() * sizeof(float), 4096);
  }
  const bool first = layer == 0, last = layer + 1 == architecture_->layers.size();
  models::LayerCall call{.stream = stream,
                         .shape = {samples, architecture_->positions, device_.threads, saved},
                         .key = {},
                         .part = part,
                         .parameters = parameters,
                         .gradients = gradients,
                         .accumulate = accumulate};
  call.saved = next();
  call.deferred = next();
  call.workspace = next();
  const std::byte* const input = next();
  std::byte* const output = last ? nullptr : next();
  std::byte* const input_gradient = first ? nullptr : next();
  double loss = 0;
  if (last) {
    call.targets = next();
    call.loss = &loss;
  }
  switch (kind) {
    case Kind::forward:
      return code.forward(call, input, output);
    case Kind::backward_input:
      return code.backward_input(call, input, output, input_gradient);
    case Kind::backward_weight:
      call.parameters = {};
      call.output_gradient = output;
      return code.backward_weight(call, input);
  }
}

PassSeconds pass_seconds(const StageLayout& layout, std::size_t first_layer, LayerTimes& times, int samples) {
  PassSeconds sum;
  const models::OrderedPass forward = models::forward_pass(layout, 0);
  const auto of = [&](const StageLayout::PassStep& step) {
    return times.seconds(first_layer + step.layer, step.kind, step.part, samples, layout.capacity().saved);
  };
  for (const auto& step : forward.steps) sum.forward += of(step);
  // Results of the forward pass in the recompute buffer are valid if no other microbatch overwrote them.
  StageLayout::Pass backward = models::backward_pass(layout, 0, forward.area).steps;
  if (layout.defers()) {
    for (const auto& step : models::weights_pass(layout)) backward.push_back(step);
    sum.tails = layout.deferred_slots();
    sum.waits = true;
  }
  for (const auto& step : backward) {
    const double seconds = of(step);
    sum.backward += seconds;
    sum.tail += seconds;
    if (step.completes_input_gradient) sum.tail = 0;
  }
  return sum;
}

double pipeline_seconds(std::span<const PassSeconds> whole, std::span<const PassSeconds> last, int microbatches,
                        int chunks) {
  const std::size_t stages = whole.size() / static_cast<std::size_t>(chunks);
  double most = 0, arrives = 0, leaves = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    double computes = 0;
    for (std::size_t k = s; k < whole.size(); k += stages)
      computes += (microbatches - 1) * (whole[k].forward + whole[k].backward) + last[k].forward + last[k].backward;
    // The last gradient that a stage sends comes from its first slice.
    double after = last[s].tail + (std::min(whole[s].tails, microbatches) - 1) * whole[s].tail;
    for (std::size_t k = s + stages; k < whole.size(); k += stages) {
      if (whole[k].waits) after += std::min(whole[k].tails, microbatches) * whole[k].tail;
    }
    most = std::max({most, arrives + computes, arrives + computes - (s > 0 ? after : 0) + leaves});
    arrives += microbatches > 1 ? whole[s].forward : last[s].forward;
    leaves += last[s].backward - (s > 0 ? last[s].tail : 0);
  }
  return most;
}

}  // namespace ranvier::apps
