#include "actors/optimizer/bucket_step.hpp"

#include "actors/gradients/gradient_records.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

BucketStep::Plan BucketStep::plan(PlanContext& planner, std::size_t slots) {
  if (planner.tiers.step == StepLocation::device) return std::nullopt;
  const UnitStates& states = *planner.share.states;
  std::size_t elements = 0;
  for (const UnitState& unit : states.all()) {
    for (std::size_t b = 0; b < unit.cut.buckets(); ++b) {
      elements = std::max(elements, unit.cut.elements(unit.optimizer, b));
    }
  }
  const auto add = [&](const char* name, runtime::DType dtype, std::size_t count) {
    return planner.memory.add({runtime::MemoryKind::workspace, runtime::MemorySpace::pinned, name,
                               elements * runtime::size_of(dtype), count});
  };
  return HostPlan{.gradients = add("gradients for the step on the host", states.precision().gradient,
                                   GradientRecords::stepped_in_place(planner) ? 0 : slots),
                  .parameters = add("parameters from the step on the host", states.precision().compute, slots)};
}

BucketStep::BucketStep(const RankContext& context, const ModelShare& share, const Plan& plan,
                       const StateRecords& states)
    : context_(&context), states_(share.states.get()), records_(&states), plan_(plan) {
  if (on_host()) prepare_host();
}

std::vector<BucketStep::Stretch> BucketStep::stretches(const Operands& operands) const {
  const UnitState& unit = states_->all()[operands.bucket.unit];
  const models::Precision& precision = states_->precision();
  const std::size_t width = runtime::size_of(precision.compute);
  const bool rounds = states_->separate_master() && operands.copy == StateRecords::Copy::counts;
  std::vector<Stretch> all;
  for (const StateRecords::Stretch& states : records_->stretches(operands.bucket, operands.slot, operands.copy)) {
    Stretch& step = all.emplace_back();
    step.states = states;
    if (operands.gradients != nullptr) {
      step.gradient = operands.gradients + states.offset * runtime::size_of(precision.gradient);
      step.gradient_on_host = operands.gradients_on_host;
    } else {
      step.gradient = unit.gradients.front().at(states.begin);
      step.gradient_runs = states.in_unit;
    }
    if (rounds && states.layers_have && operands.parameters != nullptr) {
      // The range of parameters may start before this stretch.
      const collectives::Range before{
          unit.parameters.range.begin,
          states.begin - unit.cut.slice(operands.bucket.index).begin - unit.parameters.range.begin};
      step.layers_copy = operands.parameters + unit.cut.elements(before, operands.bucket.index) * width;
    } else if (rounds && states.layers_have) {
      step.layers_copy = unit.parameters.at(states.begin);
      step.layers_runs = states.in_unit;
    }
    // Relative to the start of the stretch.
    const std::size_t begin = states.begin - unit.optimizer.begin;
    const std::size_t end = begin + states.in_unit.at(states.count - 1) + 1;
    for (const runtime::DecaySegment& segment : unit.segments) {
      const std::size_t from = std::max(segment.begin, begin), to = std::min(segment.end, end);
      if (from < to) step.segments.push_back({from - begin, to - begin, segment.decays});
    }
  }
  return all;
}

/// Clears the record: gaps between parameters are not updated, and must be zero in the layers' copies.
void BucketStep::clear_record(const Operands& operands) {
  if (operands.parameters == nullptr || on_host()) return;
  runtime::fill_zero(context_->compute, operands.parameters, parameter_bytes(*states_, operands.bucket));
}

void BucketStep::step_stretch(runtime::StreamView stream, const UnitState& unit, const Stretch& stretch,
                              runtime::AdamWOptions adamw) const {
  const StateRecords::Stretch& states = stretch.states;
  adamw.rounding.element = states.begin;
  runtime::adamw(stream,
                 {.weights = states.weights,
                  .m = states.m,
                  .v = states.v,
                  .gradient = stretch.gradient,
                  .gradient_dtype = states_->precision().gradient,
                  .working = stretch.layers_copy,
                  .working_dtype = states_->precision().compute,
                  .weights_dtype = unit.master.dtype,
                  .moments_dtype = unit.m.dtype},
                 {.elements = states.count,
                  .positions = states.in_unit,
                  .weights = states.weight_runs,
                  .moments = states.moment_runs,
                  .gradient = stretch.gradient_runs,
                  .working = stretch.layers_runs},
                 stretch.segments, adamw);
}

void BucketStep::step(const Operands& operands, const runtime::AdamWOptions& adamw, runtime::Handler done) {
  std::vector<Stretch> stretches = this->stretches(operands);
  clear_record(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  runtime::AdamWOptions options = adamw;
  options.average = double{unit.spec->averaged};
  options.rounding.unit = static_cast<std::uint32_t>(unit.global_index);
  if (on_host()) return step_on_host(operands.slot, unit, std::move(stretches), options, std::move(done));
  context_->trace.begin(context_->compute, SpanKind::optimizer, static_cast<int>(unit.global_index));
  for (const Stretch& stretch : stretches) {
    step_stretch(context_->compute, unit, stretch, options);
  }
  context_->trace.end(context_->compute, SpanKind::optimizer, Trace::Lane::compute,
                      static_cast<int>(unit.global_index));
  context_->loop.after_work(context_->compute, {"optimizer", "the step of", unit.spec->name}, std::move(done));
}

void BucketStep::round(const Operands& operands, runtime::Handler done) {
  std::vector<Stretch> stretches = this->stretches(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  if (on_host()) return round_on_host(operands.slot, unit, std::move(stretches), std::move(done));
  clear_record(operands);
  for (const Stretch& stretch : stretches) {
    if (stretch.layers_copy == nullptr) continue;
    runtime::cast(context_->compute, stretch.layers_copy, states_->precision().compute, stretch.states.weights,
                  unit.master.dtype, stretch.states.count, stretch.layers_runs, stretch.states.weight_runs);
  }
  context_->loop.after_work(context_->compute, {"optimizer", "the rounded weights of", unit.spec->name},
                            std::move(done));
}

}  // namespace ranvier::actors
