#include "actors/optimizer/bucket_step.hpp"

#include "actors/gradients/offloaded_gradients.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/momentum.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
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
  using Pass = BundleSweep::Pass;
  const UnitState& unit = states_->all()[operands.bucket.unit];
  const std::size_t index = operands.bucket.index;
  const models::Precision& precision = states_->precision();
  const bool rounds =
      operands.pass != Pass::momentum && states_->separate_master() && operands.copy == StateRecords::Copy::counts;
  std::vector<Stretch> all;
  const auto add = [&](const Range& range, const BucketPartition::Spread& spread, std::size_t offset, bool has_v) {
    const auto& [first, count, positions] = spread;
    Stretch& step = all.emplace_back(Stretch{.begin = first,
                                             .offset = offset,
                                             .arrays = {.gradient_dtype = precision.gradient,
                                                        .working_dtype = precision.compute,
                                                        .weights_dtype = unit.master.dtype,
                                                        .m_dtype = unit.m.dtype,
                                                        .v_dtype = unit.v.dtype,
                                                        .runs = {.elements = count, .positions = positions}}});
    runtime::UpdateArrays& arrays = step.arrays;
    const auto find = [&](StateKind kind, void*& state, runtime::StridedLayout& layout) {
      state = records_->operand(operands.bucket, operands.slot, operands.copy, kind, first);
      if (unit.view(kind).data != nullptr) layout = positions;
    };
    find(StateKind::weights, arrays.weights, arrays.runs.weights);
    find(StateKind::m, arrays.m, arrays.runs.moments);
    if (has_v) find(StateKind::v, arrays.v, arrays.runs.moments);
    if (operands.gradients != nullptr) {
      arrays.gradient = operands.gradients + offset * runtime::size_of(precision.gradient);
    } else {
      arrays.gradient = unit.gradients.front().at(first);
      arrays.runs.gradient = positions;
    }
    const bool layers_have = unit.parameters.range.contains(range);  // or none of it
    if (rounds && layers_have && operands.parameters != nullptr) {
      // The range of parameters may start before this stretch.
      const Range before{unit.parameters.range.begin, range.begin - unit.parameters.range.begin};
      arrays.working = operands.parameters + unit.cut.elements(before, index) * runtime::size_of(precision.compute);
    } else if (rounds && layers_have) {
      arrays.working = unit.parameters.at(first);
      arrays.runs.working = positions;
    }
    const std::size_t begin = first - unit.optimizer.begin, end = begin + positions.at(count - 1) + 1;
    (has_v ? step.segments : step.matrix_segments) =
        between(has_v ? unit.segments : unit.matrix_segments, begin, end);
    if (operands.update != nullptr) step.update = operands.update + begin;
  };
  const bool has_all_v = unit.v.stored.has_all();
  for (const Range& range : stepped_ranges(unit)) {
    const std::size_t first = unit.cut.elements({unit.optimizer.begin, range.begin - unit.optimizer.begin}, index);
    std::size_t offset = first;
    for (const Range& run : unit.cut.runs(has_all_v || operands.pass == Pass::matrices ? Range{} : range, index)) {
      for (const Range& part : unit.v.stored.in(run))
        add(range, {part.begin, part.count, {}}, offset + part.begin - run.begin, true);
      offset += run.count;
    }
    add(range, unit.cut.spread(range, index), first, has_all_v);
  }
  return all;
}

void BucketStep::step_stretch(runtime::StreamView stream, const Operands& operands, const Stretch& stretch,
                              runtime::UpdateOptions adamw) const {
  const bool subtracts = operands.pass == BundleSweep::Pass::matrices;
  runtime::UpdateArrays arrays = stretch.arrays;
  const runtime::UpdateRuns& runs = arrays.runs;
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

void BucketStep::step(const Operands& operands, runtime::UpdateOptions adamw, runtime::Handler done) {
  std::vector<Stretch> stretches = this->stretches(operands);
  const UnitState& unit = states_->all()[operands.bucket.unit];
  adamw.average = double{unit.spec->averaged};
  adamw.rounding.unit = static_cast<std::uint32_t>(unit.global_index);
  if (on_host() && !records_->on_device(operands.bucket))
    return step_on_host(operands, std::move(stretches), adamw, std::move(done));
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
