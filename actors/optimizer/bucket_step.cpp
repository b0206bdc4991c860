#include "actors/optimizer/bucket_step.hpp"

#include "actors/gradients/offloaded_gradients.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/momentum.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

namespace {

/// Parts of the segments in [begin, end), relative to `begin`.
std::vector<runtime::DecaySegment> between(const std::vector<runtime::DecaySegment>& segments, std::size_t begin,
                                           std::size_t end) {
  std::vector<runtime::DecaySegment> parts;
  for (const runtime::DecaySegment& segment : segments) {
    const std::size_t from = std::max(segment.begin, begin), to = std::min(segment.end, end);
    if (from < to) parts.push_back({from - begin, to - begin, segment.decays});
  }
  return parts;
}

}  // namespace

BucketStep::Plan BucketStep::plan(PlanContext& planner, std::size_t slots) {
  if (planner.tiers.step == StepLocation::device) return std::nullopt;
  const UnitStates& states = *planner.share.states;
  std::size_t elements = 0;
  for (const UnitState& unit : states.all()) {
    for (std::size_t b = 0; !unit.optimizer_on_device() && b < unit.cut.buckets(); ++b) {
      elements = std::max(elements, unit.cut.elements(unit.optimizer, b));
    }
  }
  const auto add = [&](const char* name, runtime::DType dtype, std::size_t count) {
    return planner.memory.add({runtime::MemoryKind::workspace, runtime::MemorySpace::pinned, name,
                               elements * runtime::size_of(dtype), count});
  };
  return HostPlan{.gradients = add("gradients for the step on the host", states.precision().gradient,
                                   OffloadedGradients::stepped_in_place(planner) ? 0 : slots),
                  .parameters = add("parameters from the step on the host", states.precision().compute, slots)};
}

std::vector<BucketStep::Stretch> BucketStep::stretches(const Operands& operands) const {
  const UnitState& unit = states_->all()[operands.bucket.unit];
  const models::Precision& precision = states_->precision();
  const std::size_t width = runtime::size_of(precision.compute);
  const bool rounds = operands.pass != BundleSweep::Pass::momentum && states_->separate_master() &&
                      operands.copy == StateRecords::Copy::counts;
  std::vector<Stretch> all;
  for (const StateRecords::Stretch& states : records_->stretches(operands.bucket, operands.slot, operands.copy)) {
    Stretch& step = all.emplace_back(Stretch{states});
    const std::size_t first = states.begin;
    step.arrays.gradient_dtype = precision.gradient;
    step.arrays.working_dtype = precision.compute;
    if (operands.gradients != nullptr) {
      step.arrays.gradient = operands.gradients + states.offset * runtime::size_of(precision.gradient);
    } else {
      step.arrays.gradient = unit.gradients.front().at(first);
      step.arrays.runs.gradient = states.arrays.runs.positions;
    }
    if (rounds && states.layers_have && operands.parameters != nullptr) {
      // The range of parameters may start before this stretch.
      const collectives::Range before{
          unit.parameters.range.begin,
          first - unit.cut.slice(operands.bucket.index).begin - unit.parameters.range.begin};
      step.arrays.working = operands.parameters + unit.cut.elements(before, operands.bucket.index) * width;
    } else if (rounds && states.layers_have) {
      step.arrays.working = unit.parameters.at(first);
      step.arrays.runs.working = states.arrays.runs.positions;
    }
    const std::size_t begin = first - unit.optimizer.begin;
    const std::size_t end = begin + states.arrays.runs.positions.at(states.arrays.runs.elements - 1) + 1;
    step.segments = between(unit.segments, begin, end);
    step.matrix_segments = between(unit.matrix_segments, begin, end);
    if (operands.update != nullptr) step.update = operands.update + begin;
  }
  return all;
}

void BucketStep::step_stretch(runtime::StreamView stream, const Operands& operands, const Stretch& stretch,
                              runtime::AdamWOptions adamw) const {
  const bool subtracts = operands.pass == BundleSweep::Pass::matrices;
  runtime::AdamWArrays arrays = stretch.arrays;
  const runtime::AdamWRuns& runs = arrays.runs;
  adamw.rounding.element = stretch.begin;
  if (!subtracts && !operands.only_rounds) {
    if (states_->rule() == UpdateRule::sgd) return runtime::sgd(stream, arrays, stretch.segments, adamw);
    runtime::adamw(stream, arrays, stretch.segments, adamw);
    if (!stretch.matrix_segments.empty())
      runtime::muon_momentum(stream, arrays, stretch.update, stretch.matrix_segments, adamw);
    return;
  }
  if (subtracts && !stretch.matrix_segments.empty()) {
    adamw.learning_rate *= adamw.muon_rate;
    arrays.working = nullptr;  // rounded below, together with AdamW's parameters
    runtime::muon_apply(stream, arrays, stretch.update, stretch.matrix_segments, adamw);
  }
  if (stretch.arrays.working == nullptr) return;
  runtime::cast(stream, stretch.arrays.working, arrays.working_dtype, arrays.weights, arrays.weights_dtype,
                runs.elements, runs.working, runs.weights);
}

void BucketStep::step(const Operands& operands, runtime::AdamWOptions adamw, runtime::Handler done) {
  std::vector<Stretch> stretches = this->stretches(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  adamw.average = double{unit.spec->averaged};
  adamw.rounding.unit = static_cast<std::uint32_t>(unit.global_index);
  if (is_on_host(operands.bucket)) return step_on_host(operands, std::move(stretches), adamw, std::move(done));
  // Gaps between parameters are not updated, and must be zero in the layers' copies.
  if (operands.parameters != nullptr)
    runtime::fill_zero(context_->compute, operands.parameters, parameter_bytes(*states_, operands.bucket));
  const bool updates = !operands.only_rounds && operands.pass != BundleSweep::Pass::matrices;
  const auto number = static_cast<int>(unit.global_index);
  if (updates) context_->trace.begin(context_->compute, SpanKind::optimizer, number);
  for (const Stretch& stretch : stretches) step_stretch(context_->compute, operands, stretch, adamw);
  if (updates) context_->trace.end(context_->compute, SpanKind::optimizer, Trace::Lane::compute, number);
  context_->loop.after_work(context_->compute,
                            {"optimizer", updates ? "the step of" : "the rounded weights of", unit.spec->name},
                            std::move(done));
}

}  // namespace ranvier::actors
