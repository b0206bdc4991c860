#include "actors/optimizer/bucket_step.hpp"

#include "actors/optimizer/bundle_sweep.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

BucketStep::Plan BucketStep::plan(PlanContext& planner, std::size_t slots) {
  if (planner.tiers.step == StepLocation::device) return std::nullopt;
  return HostStep::plan(planner, slots);
}

BucketStep::BucketStep(const RankContext& context, const ModelShare& share, const Plan& plan,
                       const StateRecords& states)
    : context_(&context),
      states_(share.states.get()),
      records_(&states),
      host_(plan ? std::make_unique<HostStep>(context, share, *plan) : nullptr) {}

std::vector<StretchStep> BucketStep::stretches(const Operands& operands) const {
  const UnitState& unit = states_->all()[operands.bucket.unit];
  const models::Precision& precision = states_->precision();
  const std::size_t width = runtime::size_of(precision.compute);
  const bool rounds = states_->separate_master() && operands.copy == StateRecords::Copy::counts;
  std::vector<StretchStep> all;
  for (const StateRecords::Stretch& states : records_->stretches(operands.bucket, operands.slot, operands.copy)) {
    StretchStep& step = all.emplace_back();
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
  if (operands.parameters == nullptr || host_) return;
  runtime::fill_zero(context_->compute, operands.parameters, parameter_bytes(*states_, operands.bucket));
}

void BucketStep::step(const Operands& operands, const runtime::AdamWOptions& adamw, runtime::Handler done) {
  std::vector<StretchStep> stretches = this->stretches(operands);
  clear_record(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  runtime::AdamWOptions options = adamw;
  options.average = double{unit.spec->averaged};
  options.rounding.unit = static_cast<std::uint32_t>(unit.global_index);
  if (host_) return host_->step(operands.slot, unit, std::move(stretches), options, std::move(done));
  context_->trace.begin(context_->compute, SpanKind::optimizer, static_cast<int>(unit.global_index));
  for (const StretchStep& stretch : stretches) {
    step_stretch(context_->compute, unit, states_->precision(), stretch, options);
  }
  context_->trace.end(context_->compute, SpanKind::optimizer, Trace::Lane::compute,
                      static_cast<int>(unit.global_index));
  context_->loop.after_work(context_->compute, {"optimizer", "the step of", unit.spec->name}, std::move(done));
}

void BucketStep::round(const Operands& operands, runtime::Handler done) {
  std::vector<StretchStep> stretches = this->stretches(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  if (host_) return host_->refresh(operands.slot, std::move(stretches), unit.master.dtype, std::move(done));
  clear_record(operands);
  for (const StretchStep& stretch : stretches) {
    if (stretch.layers_copy == nullptr) continue;
    runtime::cast(context_->compute, stretch.layers_copy, states_->precision().compute, stretch.states.weights,
                  unit.master.dtype, stretch.states.count, stretch.layers_runs, stretch.states.weight_runs);
  }
  context_->loop.after_work(context_->compute, {"optimizer", "the rounded weights of", unit.spec->name},
                            std::move(done));
}

}  // namespace ranvier::actors
