#include "actors/gradients/microbatch_reduction.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SpanKind;
using runtime::Trace;

namespace {

/// Ranges of a unit's parameters, with adjacent ones merged. Units with equal ranges share buffers, because they leave
/// the same gaps, which are never written.
std::vector<std::size_t> layout_of(const UnitState& unit) {
  std::vector<std::size_t> layout{unit.elements};
  for (std::size_t p = 0; p < unit.spec->parameters.size(); ++p) {
    const std::size_t offset = unit.spec->offset(p), elements = unit.spec->parameters[p].elements();
    if (p > 0 && layout[layout.size() - 2] + layout.back() == offset) {
      layout.back() += elements;
    } else {
      layout.insert(layout.end(), {offset, elements});
    }
  }
  return layout;
}

}  // namespace

MicrobatchReduction::Plan MicrobatchReduction::plan(PlanContext& planner, int ahead) {
  const UnitStates& states = *planner.share.states;
  const runtime::DType dtype = states.precision().gradient;
  const bool shards = states.shards_gradients();
  Plan plan;
  if (planner.tiers.gradients == TierKind::device && !shards) return plan;
  std::vector<std::vector<std::size_t>> layouts;
  for (const UnitState& unit : states.all()) layouts.push_back(layout_of(unit));
  const auto steps = planner.share.stage->units_of_parts(models::Stage::PassStep::Kind::backward_weight);
  plan.classes = buffer_classes(layouts, steps, ahead, false);
  for (std::size_t kind = 0; kind < plan.classes.places.size(); ++kind) {
    const std::size_t elements = states.all()[plan.classes.first_unit[kind]].elements;
    plan.places.push_back(planner.memory.add({MemoryKind::workspace, MemorySpace::device,
                                              fmt::format("a microbatch's gradients of {} elements", elements),
                                              elements * runtime::size_of(dtype), plan.classes.places[kind]}));
  }
  std::vector<std::vector<HopPipeline::ItemShape>> shapes;
  for (const auto& units : steps) {
    auto& items = shapes.emplace_back();
    for (const std::size_t unit : units) items.push_back({states.all()[unit].elements});
  }
  plan.reduction =
      HopPipeline::plan(planner,
                        {.hops = shards ? planner.share.flow.reduce_microbatch : std::vector<collectives::Hop>{},
                         .dtype = dtype,
                         .family = 2,
                         .name = "gradients",
                         .wire = &collectives::WireTypes::reduce},
                        shapes);
  return plan;
}

MicrobatchReduction::MicrobatchReduction(const RankContext& context, const ModelShare& share, const Plan& plan,
                                         OffloadedGradients* records,
                                         std::function<void(const models::Stage::PassStep&)> complete)
    : context_(&context),
      stage_(share.stage.get()),
      states_(share.states.get()),
      records_(records),
      in_place_(records == nullptr && !states_->shards_gradients()),
      complete_(std::move(complete)),
      schedule_(plan.classes),
      reduction_(context, *share.column, plan.reduction),
      places_(schedule_.places()),
      last_step_(stage_->uses().size()),
      writings_(context.loop, "gradients", [this](std::uint64_t step) { return ready(step); }) {
  std::vector<std::size_t> taken(plan.places.size(), 0);
  for (std::size_t p = 0; p < places_.size(); ++p) {
    const std::size_t kind = schedule_.class_of_place(p);
    places_[p] = context.arena.slot(plan.places[kind], taken[kind]++);
  }
  std::vector<std::size_t> uses(states_->all().size(), 0);
  for (const models::StageSlices::UnitUse& use : stage_->uses()) use_in_unit_.push_back(uses[use.unit]++);
}

void MicrobatchReduction::start(int microbatches) {
  expect(writings_.empty(), "gradients of one batch are reduced at a time");
  microbatches_ = microbatches;
}

std::uint64_t MicrobatchReduction::announce(const Announced& pass) {
  const std::uint64_t first = writings_.next();
  for (const models::Stage::PassStep& step : pass.steps) {
    if (!pass.backward || !uses(step)) continue;
    const std::uint64_t number = writings_.next();
    Writing& writing = writings_.add({.writes = step, .microbatch = pass.microbatch});
    writing.places.resize(stage_->layer(stage_->layer_of(step)).layer->units().size());
    for (const std::size_t use : stage_->uses_of(step)) {
      const auto [layer, index, unit] = stage_->uses()[use];
      if (in_place_) {
        writing.places[index] = states_->all()[unit].gradients[use_in_unit_[use]].data;
        continue;
      }
      const BufferSchedule::Assignment assigned = schedule_.next(unit, number, false);
      writing.after.push_back(assigned.after);
      writing.places[index] = places_[assigned.place];
      if (adds(pass.microbatch)) writing.sums.push_back({use, last_step_[use]});
      last_step_[use] = number;
    }
    writing.sums_missing = writing.sums.size();
  }
  bring_sums();
  return first;
}

bool MicrobatchReduction::ready(std::uint64_t step) const {
  const Writing& wanted = writings_[step];
  return wanted.sums_missing == 0 &&
         std::ranges::all_of(wanted.after, [this](const auto& after) { return is_over(after); });
}

/// Fetches sums to buffers that became free.
void MicrobatchReduction::bring_sums() {
  for (std::uint64_t step = writings_.first(); step < writings_.next(); ++step) {
    Writing& writing = writings_[step];
    for (std::size_t s = 0; s < writing.sums.size(); ++s) {
      Sum& sum = writing.sums[s];
      // All steps before the first one were passed to the records.
      if (sum.begun || sum.after >= writings_.first() || !is_over(writing.after[s])) continue;
      sum.begun = true;
      const auto [layer, index, unit] = stage_->uses()[sum.use];
      records_->call(OffloadedGradients::Call::fetch, unit, use_in_unit_[sum.use], writing.places[index],
                     [this, step] {
                       --writings_[step].sums_missing;
                       writings_.check();
                     });
    }
  }
}

void MicrobatchReduction::provide(std::uint64_t step, models::StepArrays& arrays) {
  const Writing& writing = writings_[step];
  arrays.gradients = writing.places;
  arrays.accumulate = adds(writing.microbatch);
}

bool MicrobatchReduction::queued(std::uint64_t step) {
  const Writing& writing = writings_[step];
  const auto& uses = stage_->uses_of(writing.writes);
  if (spoils_by_ && stage_->layer_of(writing.writes) == 0 && !uses.empty()) {
    runtime::scale(context_->compute, writing.places[stage_->uses()[uses.front()].index_in_layer],
                   states_->precision().gradient, *std::exchange(spoils_by_, std::nullopt), 1);
  }
  if (!in_place_ || writing.microbatch + 1 == microbatches_) return true;
  writings_.remove(step);
  return false;
}

void MicrobatchReduction::done(std::uint64_t step) {
  if (in_place_) return complete_(writings_.remove(step).writes);
  const Writing& leaving = writings_[step];
  std::vector<HopPipeline::Item> items;
  for (const std::size_t use : stage_->uses_of(leaving.writes)) {
    const auto [layer, index, unit] = stage_->uses()[use];
    items.push_back({leaving.places[index], 0, states_->all()[unit].elements});
  }
  const auto begin = context_->trace.now();
  reduction_.submit(std::move(items),
                    fmt::format("reduce-scatter of the gradients of layer {}, microbatch {}",
                                stage_->layer_of(leaving.writes), leaving.microbatch),
                    [this, step, begin] {
                      context_->trace.add(SpanKind::reduce, Trace::Lane::communicate, begin, context_->trace.now(),
                                          writings_[step].microbatch);
                      sums_.run(step, [this, step] { accumulate_reduced(step); });
                    });
}

void MicrobatchReduction::accumulate_reduced(std::uint64_t step) {
  const Writing writing = writings_.remove(step);
  const auto& uses = stage_->uses_of(writing.writes);
  accumulating_.insert(step);
  const runtime::Handler done = [this, step, writes = writing.writes,
                                 last = writing.microbatch + 1 == microbatches_] {
    accumulating_.erase(step);
    bring_sums();
    writings_.check();
    if (last) complete_(writes);
  };
  const runtime::Handler one_done = uses.empty() ? done : runtime::last_of(uses.size(), done);
  const bool first = writing.microbatch == 0, adds = states_->shards_gradients() && !first;
  const runtime::DType dtype = states_->precision().gradient;
  for (const std::size_t use : uses) {
    const auto [layer, index, unit] = stage_->uses()[use];
    if (records_ != nullptr) {
      records_->call(adds ? OffloadedGradients::Call::add : OffloadedGradients::Call::store, unit,
                     use_in_unit_[use], writing.places[index], one_done);
      continue;
    }
    const UnitView& sum = states_->all()[unit].gradients[use_in_unit_[use]];
    const std::byte* arrived = writing.places[index] + sum.range.begin * runtime::size_of(dtype);
    if (first) {
      runtime::copy(context_->reduce, sum.data, arrived, sum.bytes());
    } else {
      runtime::add(context_->reduce, sum.data, arrived, dtype, sum.range.count);
    }
  }
  if (records_ == nullptr) {
    context_->loop.after_work(context_->reduce, {"gradients", "the addition of a microbatch's gradients"}, done);
  } else if (uses.empty()) {
    context_->loop.post(done);
  }
  bring_sums();
}

}  // namespace ranvier::actors
