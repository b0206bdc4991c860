#include "actors/optimizer/bucket_step.hpp"

#include "actors/gradients/gradient_records.hpp"
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
  const bool rounds = operands.rounds && states_->separate_master() && operands.copy == StateRecords::Copy::counts;
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
    const std::size_t begin = states.begin - unit.optimizer.begin;
    const std::size_t end = begin + states.in_unit.at(states.count - 1) + 1;
    step.segments = between(unit.segments, begin, end);
    step.matrix_segments = between(unit.matrix_segments, begin, end);
    if (operands.update != nullptr) step.update = operands.update + begin;
  }
  return all;
}

/// Clears the record: gaps between parameters are not updated, and must be zero in the layers' copies.
void BucketStep::clear_record(const Operands& operands) {
  if (operands.parameters == nullptr || is_on_host(operands.bucket)) return;
  runtime::fill_zero(context_->compute, operands.parameters, parameter_bytes(*states_, operands.bucket));
}

void BucketStep::step_stretch(runtime::StreamView stream, const UnitState& unit, const Stretch& stretch,
                              runtime::AdamWOptions adamw) const {
  adamw.rounding.element = stretch.states.begin;
  const auto [arrays, runs] = kernel_arguments(unit, stretch);
  if (states_->rule() == UpdateRule::sgd) return runtime::sgd(stream, arrays, runs, stretch.segments, adamw);
  runtime::adamw(stream, arrays, runs, stretch.segments, adamw);
  if (!stretch.matrix_segments.empty())
    runtime::muon_momentum(stream, arrays, stretch.update, runs, stretch.matrix_segments, adamw);
}

std::pair<runtime::AdamWArrays, runtime::AdamWRuns> BucketStep::kernel_arguments(const UnitState& unit,
                                                                                 const Stretch& stretch) const {
  const StateRecords::Stretch& states = stretch.states;
  return {{.weights = states.weights,
           .m = states.m,
           .v = states.v,
           .gradient = stretch.gradient,
           .gradient_dtype = states_->precision().gradient,
           .working = stretch.layers_copy,
           .working_dtype = states_->precision().compute,
           .weights_dtype = unit.master.dtype,
           .m_dtype = unit.m.dtype,
           .v_dtype = unit.v.dtype},
          {.elements = states.count,
           .positions = states.in_unit,
           .weights = states.weight_runs,
           .moments = states.moment_runs,
           .gradient = stretch.gradient_runs,
           .working = stretch.layers_runs}};
}

void BucketStep::step(const Operands& operands, const runtime::AdamWOptions& adamw, runtime::Handler done) {
  std::vector<Stretch> stretches = this->stretches(operands);
  clear_record(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  const runtime::AdamWOptions options = options_for(unit, adamw);
  if (is_on_host(operands.bucket))
    return step_on_host(operands.slot, unit, std::move(stretches), options, std::move(done));
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
  if (is_on_host(operands.bucket)) return round_on_host(operands.slot, unit, std::move(stretches), std::move(done));
  round_stretches(operands, unit, stretches, std::move(done));
}

void BucketStep::subtract(const Operands& operands, const runtime::AdamWOptions& adamw, runtime::Handler done) {
  const std::vector<Stretch> stretches = this->stretches(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  runtime::AdamWOptions options = options_for(unit, adamw);
  options.learning_rate *= options.muon_rate;
  for (const Stretch& stretch : stretches) {
    options.rounding.element = stretch.states.begin;
    auto [arrays, runs] = kernel_arguments(unit, stretch);
    arrays.working = nullptr;  // rounded below, together with AdamW's parameters
    if (!stretch.matrix_segments.empty())
      runtime::muon_apply(context_->compute, arrays, stretch.update, runs, stretch.matrix_segments, options);
  }
  round_stretches(operands, unit, stretches, std::move(done));
}

runtime::AdamWOptions BucketStep::options_for(const UnitState& unit, runtime::AdamWOptions adamw) {
  adamw.average = double{unit.spec->averaged};
  adamw.rounding.unit = static_cast<std::uint32_t>(unit.global_index);
  return adamw;
}

void BucketStep::round_stretches(const Operands& operands, const UnitState& unit,
                                 const std::vector<Stretch>& stretches, runtime::Handler done) {
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
