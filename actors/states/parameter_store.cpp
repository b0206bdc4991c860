#include "actors/states/parameter_store.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::actors {

using collectives::Range;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SpanKind;
using runtime::Trace;

namespace {

/// Returns whether trained and frozen units use the same hops.
bool gathers_alike(const ModelShare& share) {
  return share.flow.gather_forward == share.frozen_flow.gather_forward &&
         share.flow.gather_backward == share.frozen_flow.gather_backward;
}

}  // namespace

BufferClasses ParameterStore::classes_of(const models::StageSlices& stage, const std::vector<std::size_t>& elements,
                                         const Options& options) {
  std::vector<std::vector<std::size_t>> layouts;
  for (const std::size_t of_unit : elements) layouts.push_back({of_unit});
  const auto of_steps = [&](models::Stage::PassStep::Kind kind) {
    auto steps = stage.units_of_parts(kind);
    for (auto& units : steps) std::erase_if(units, [&](std::size_t unit) { return elements[unit] == 0; });
    return buffer_classes(layouts, steps, options.prefetch, options.reuse);
  };
  BufferClasses classes = of_steps(models::Stage::PassStep::Kind::forward);
  const BufferClasses backward = of_steps(models::Stage::PassStep::Kind::backward_input);
  for (std::size_t kind = 0; kind < classes.places.size(); ++kind) {
    classes.places[kind] = std::max(classes.places[kind], backward.places[kind]);
  }
  return classes;
}

ParameterStore::Plan ParameterStore::plan(PlanContext& planner, const Options& options) {
  const ModelShare& share = planner.share;
  Plan plan{.options = options, .pulls = options.pulls && !ShardOwners(share).other_rows().empty()};
  if (!share.states->gathers_parameters()) return plan;
  std::vector<std::size_t> elements;  // by unit
  for (const UnitState& unit : share.states->all()) elements.push_back(unit.in_place() ? 0 : unit.elements);
  plan.classes = classes_of(*share.stage, elements, options);
  const runtime::DType dtype = share.states->precision().compute;
  for (std::size_t kind = 0; kind < plan.classes.places.size(); ++kind) {
    const std::size_t of_unit = elements[plan.classes.first_unit[kind]];
    plan.places.push_back(planner.memory.add({MemoryKind::workspace, MemorySpace::device,
                                              fmt::format("gathered units of {} elements", of_unit),
                                              of_unit * runtime::size_of(dtype), plan.classes.places[kind]}));
  }
  const bool alike = gathers_alike(share);
  for (const UnitState& unit : share.states->all()) plan.pipeline_of.push_back(alike || unit.trained() ? 0 : 1);
  for (std::size_t p = 0; p < (alike ? 1 : 2); ++p) {
    std::vector<std::vector<HopPipeline::ItemShape>> bundles;
    for (const auto kind :
         {models::Stage::PassStep::Kind::forward, models::Stage::PassStep::Kind::backward_input}) {
      for (const auto& units : share.stage->units_of_parts(kind)) {
        std::vector<HopPipeline::ItemShape> bundle;
        for (const std::size_t unit : units)
          if (elements[unit] > 0 && plan.pipeline_of[unit] == p) bundle.push_back({elements[unit]});
        if (!bundle.empty()) bundles.push_back(std::move(bundle));
      }
    }
    auto& [forward, backward] = plan.pipelines.emplace_back();
    if (bundles.empty()) continue;
    const collectives::ShardFlow& flow = p == 0 ? share.flow : share.frozen_flow;
    HopPipeline::Options hops{.hops = flow.gather_forward,
                              .dtype = dtype,
                              .family = p == 0 ? 0 : 6,
                              .name = p == 0 ? "parameters" : "frozen parameters"};
    forward = HopPipeline::plan(planner, hops, bundles);
    hops.hops = flow.gather_backward;
    ++hops.family;
    backward = HopPipeline::plan(planner, hops, bundles);
  }
  return plan;
}

ParameterStore::ParameterStore(const RankContext& context, const ModelShare& share, const Plan& plan,
                               OffloadedParameters* records)
    : context_(&context),
      records_(records),
      stage_(share.stage.get()),
      states_(share.states.get()),
      column_(share.column.get()),
      owners_(share),
      reuse_(plan.options.reuse),
      schedule_(plan.classes),
      pipeline_of_(plan.pipeline_of),
      places_(schedule_.places()),
      gathered_once_(states_->all().size(), false),
      version_of_(states_->all().size(), 0),
      secondary_of_(states_->all().size(), 0),
      secondary_begun_of_(states_->all().size(), 0),
      uses_(context.loop, "parameters", [this](std::uint64_t use) { return ready(use); }) {
  for (const auto& [forward, backward] : plan.pipelines) {
    pipelines_.push_back({HopPipeline(context, *column_, forward), HopPipeline(context, *column_, backward)});
  }
  std::vector<std::size_t> used(plan.places.size(), 0);
  for (std::size_t p = 0; p < places_.size(); ++p) {
    const std::size_t kind = schedule_.class_of_place(p);
    places_[p].data = context.arena.slot(plan.places[kind], used[kind]++);
  }
  if (plan.pulls) {
    pulls_.emplace(context, share, records, [this](std::size_t unit, bool backward, std::uint64_t version) {
      return has_shard(unit, backward, version);
    });
  }
}

void ParameterStore::start() {
  if (pulls_) pulls_->start();
}

bool ParameterStore::has_shard(std::size_t unit, bool backward, std::uint64_t version) const {
  if (!states_->all()[unit].trained()) version = 0;
  return version_of_[unit] == version &&
         (!owners_.own(unit, backward).secondary || secondary_of_[unit] == version + 1);
}

std::uint64_t ParameterStore::announce(const Announced& pass) {
  const std::uint64_t first = uses_.next();
  for (const models::Stage::PassStep& step : pass.steps) {
    if (!uses(step)) continue;
    const std::uint64_t number = uses_.next();
    Use& use = uses_.add({.step = step});
    Gather gather{.use = number, .backward = pass.backward};
    use.pointers.resize(stage_->layer(stage_->layer_of(step)).layer->units().size());
    for (const std::size_t unit_use : stage_->uses_of(step)) {
      const auto [layer, index, unit] = stage_->uses()[unit_use];
      if (const UnitState& state = states_->all()[unit]; state.in_place()) {
        use.pointers[index] = state.parameters.data;
        continue;
      }
      const BufferSchedule::Assignment assigned = schedule_.next(unit, number, reuse_);
      use.pointers[index] = places_[assigned.place].data;
      if (!assigned.fill) continue;
      Fill& fill = gather.fills.emplace_back(
          Fill{unit, assigned.place, places_[assigned.place].data, pass.backward || gathered_once_[unit]});
      gathered_once_[unit] = states_->all()[unit].keeps_secondary();
      if (!on_device(fill)) records_->announce(owners_.own(unit, fill.backward));
      gather.after = std::max(gather.after, assigned.after);
    }
    use.here = gather.fills.empty();
    if (!use.here) gathers_to_start_.push_back(std::make_shared<Gather>(std::move(gather)));
  }
  start_gathers();
  return first;
}

bool ParameterStore::ready(std::uint64_t number) const {
  const Use& use = uses_[number];
  const auto& units = stage_->uses_of(use.step);
  return use.here && std::ranges::all_of(units, [this](std::size_t unit_use) {
           const std::size_t unit = stage_->uses()[unit_use].unit;
           const UnitState& state = states_->all()[unit];
           return !state.in_place() || !state.trained() || version_of_[unit] == version_;
         });
}

void ParameterStore::provide(std::uint64_t use, models::StepArrays& arrays) {
  arrays.parameters = uses_[use].pointers;
}

bool ParameterStore::queued(std::uint64_t use) {
  if (pipelines_.empty()) uses_.remove(use);
  return !pipelines_.empty();
}

void ParameterStore::done(std::uint64_t use) {
  uses_.remove(use);
  start_gathers();
}

bool ParameterStore::can_start(const Gather& gather) const {
  if (gather.after && *gather.after >= uses_.first()) return false;
  return std::ranges::all_of(gather.fills, [&](const Fill& fill) {
    return places_[fill.place].copies == 0 && has_shard(fill.unit, fill.backward, version_);
  });
}

void ParameterStore::start_gathers() {
  while (!gathers_to_start_.empty() && can_start(*gathers_to_start_.front())) {
    const auto gather = gathers_to_start_.front();
    gathers_to_start_.pop_front();
    gathers_under_way_.push_back(gather);
    gather->since = context_->loop.now();
    gather->missing = 1;  // this rank's shards
    if (pulls_) {
      gather->asked = pulls_->ask(gather->fills, version_, [this, gather](int rank) {
        gather->asked.erase(std::ranges::find(gather->asked, rank));
        came(gather);
      });
      if (!gather->asked.empty()) gather->asked_at = context_->trace.now();
      gather->missing += gather->asked.size();
    }
    bring_own(gather);
  }
  read_ahead();
}

void ParameterStore::read_ahead() {
  if (records_ == nullptr) return;
  records_->read_ahead(
      [this](OffloadedParameters::Shard piece) { return has_shard(piece.unit, piece.secondary, version_); });
}

void ParameterStore::bring_own(const std::shared_ptr<Gather>& gather) {
  const auto offloaded = static_cast<std::size_t>(
      std::ranges::count_if(gather->fills, [this](const Fill& fill) { return !on_device(fill); }));
  // One more for all copies on the device.
  const auto brought = runtime::last_of(1 + offloaded, [this, gather, number = started_++] {
    if (pulls_) return arrived(gather);
    // Collectives have the order of accesses, the same on all ranks.
    submits_.run(number, [this, gather] { submit(gather); });
  });
  for (const Fill& fill : gather->fills) {
    if (!on_device(fill)) {
      records_->fetch(owners_.own(fill.unit, fill.backward), fill.data, [this, brought] {
        brought();
        read_ahead();
      });
      continue;
    }
    const Range range = owners_.range(fill.unit, fill.backward, column_->layout.rank());
    const runtime::ConstBytes own = owners_.bytes(fill.unit, fill.backward);
    runtime::copy(context_->gather, fill.data + range.begin * runtime::size_of(states_->precision().compute),
                  own.data(), own.size());
  }
  if (offloaded < gather->fills.size()) return after_copies(brought);
  brought();
}

void ParameterStore::submit(const std::shared_ptr<Gather>& gather) {
  gather->submitted = true;
  std::vector<std::array<std::vector<HopPipeline::Item>, 2>> items(pipelines_.size());
  for (const Fill& fill : gather->fills) {
    items[pipeline_of_[fill.unit]][fill.backward ? 1 : 0].push_back(
        {fill.data, 0, states_->all()[fill.unit].elements});
  }
  for (std::size_t p = 0; p < pipelines_.size(); ++p) {
    for (std::size_t backward = 0; backward < 2; ++backward) {
      if (items[p][backward].empty()) continue;
      ++gather->missing;
      HopPipeline& hops = pipelines_[p][backward];
      if (hops.moves() && !gather->asked_at) gather->asked_at = context_->trace.now();
      hops.submit(std::move(items[p][backward]), describe(*gather), [this, gather] { came(gather); });
    }
  }
  arrived(gather);  // this rank's shards
}

void ParameterStore::came(const std::shared_ptr<Gather>& gather) {
  gather->came = context_->trace.now();
  arrived(gather);
}

void ParameterStore::after_copies(runtime::Handler next) {
  context_->loop.after_work(context_->gather, {"parameters", "the copies of this rank's own pieces"},
                            std::move(next));
}

void ParameterStore::arrived(const std::shared_ptr<Gather>& gather) {
  if (--gather->missing > 0) return;
  // The span covers requests to other ranks only, not fetches of this rank's shards.
  if (gather->asked_at)
    context_->trace.add(SpanKind::gather, Trace::Lane::communicate, *gather->asked_at, gather->came,
                        static_cast<int>(states_->all()[gather->fills.front().unit].global_index));
  std::erase(gathers_under_way_, gather);
  uses_[gather->use].here = true;
  for (const Fill& fill : gather->fills) {
    if (!fill.backward && states_->all()[fill.unit].secondary) keep_secondary(fill.unit, fill.place);
  }
  uses_.check();
}

void ParameterStore::keep_secondary(std::size_t unit, std::size_t place) {
  const UnitState& state = states_->all()[unit];
  const std::uint64_t version = (state.trained() ? version_ : 0) + 1;
  if (secondary_begun_of_[unit] == version) return;  // it may be in use
  secondary_begun_of_[unit] = version;
  const UnitView& part = *state.secondary;
  ++places_[place].copies;
  const auto kept = [this, unit, place, version] {
    --places_[place].copies;
    secondary_of_[unit] = version;
    start_gathers();
    if (pulls_) pulls_->answer_waiting();
  };
  if (state.secondary_tier != TierKind::device)
    return records_->store_from({unit, true}, places_[place].data, kept);
  const std::byte* from = places_[place].data + part.range.begin * runtime::size_of(part.dtype);
  runtime::copy(context_->gather, part.data, from, part.bytes());
  after_copies(kept);
}

void ParameterStore::begin_refresh() {
  expect(gathers_to_start_.empty() && gathers_under_way_.empty() && !uses_.awaited(),
         "parameters change while a pass still needs them");
  ++version_;
  schedule_.forget();
}

void ParameterStore::refreshed(std::size_t unit) {
  ++version_of_[unit];
  start_gathers();
  if (pulls_) pulls_->answer_waiting();
  uses_.check();
}

std::string ParameterStore::describe(const Gather& gather) const {
  std::string units;
  for (const Fill& fill : gather.fills) {
    if (!units.empty()) units += ", ";
    units += states_->all()[fill.unit].spec->name;
  }
  return fmt::format("the gather of the parameters of {} for a {} pass", units,
                     gather.backward ? "backward" : "forward");
}

std::vector<Wait> ParameterStore::waits() const {
  std::vector<Wait> all;
  for (const auto& gather : gathers_under_way_) {
    for (const int rank : gather->asked) all.push_back({describe(*gather), rank, gather->since});
    // A collective starts when this rank's shards are fetched and all earlier gathers have started.
    if (gather->submitted) all.push_back({describe(*gather), std::nullopt, gather->since});
  }
  return all;
}

std::vector<int> ParameterStore::peers() const {
  std::vector<int> ranks;
  for (const int row : owners_.other_rows()) ranks.push_back(column_->ranks[static_cast<std::size_t>(row)]);
  return ranks;
}

}  // namespace ranvier::actors
