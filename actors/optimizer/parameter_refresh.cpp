#include "actors/optimizer/parameter_refresh.hpp"

#include "actors/base/rank_context.hpp"

#include <memory>
#include <utility>

namespace ranvier::actors {

using runtime::SpanKind;
using runtime::Trace;

namespace {

constexpr std::size_t bundles_at_a_time = 3;  // one is updated, one gathered, one stored

}  // namespace

ParameterRefresh::Plan ParameterRefresh::plan(PlanContext& planner) {
  const UnitStates& states = *planner.share.states;
  return plan_gather(planner, parameter_bytes, "parameters being refreshed",
                     states.trained_on_device() ? 0 : bundles_at_a_time,
                     {.hops = planner.share.flow.refresh,
                      .dtype = states.precision().compute,
                      .family = 5,
                      .name = "refreshed parameters"});
}

ParameterRefresh::ParameterRefresh(const RankContext& context, const ModelShare& share, const Plan& plan,
                                   ParameterStore& parameters, OffloadedParameters* tier)
    : trace_(&context.trace),
      states_(share.states.get()),
      parameters_(&parameters),
      tier_(states_->trained_on_device() ? nullptr : tier),
      gather_(context, *share.column, plan.gather),
      places_(context.arena, plan.places),
      gathers_(share.chunks.bundles.size()) {
  for (const UnitState& unit : states_->all()) buckets_missing_.push_back(unit.cut.buckets());
}

void ParameterRefresh::stepped(const BundleSweep& round, std::size_t bundle, bool units_refreshed,
                               runtime::Handler done) {
  gathers_.run(round.bundles[bundle].number, [this, &round, bundle, units_refreshed, done = std::move(done)] {
    gather(round, bundle, [this, &round, bundle, units_refreshed, done] {
      for (const ChunkSchedule::Bucket& bucket : round.bundles[bundle].buckets)
        if (!units_refreshed) refreshed(bucket);
      done();
    });
  });
}

void ParameterRefresh::gather(const BundleSweep& round, std::size_t b, runtime::Handler done) {
  if (!gather_.moves()) return store(round, b, done);
  const BundleSweep::Bundle& bundle = round.bundles[b];
  std::vector<HopPipeline::Item> items;
  for (const BundleSweep::Bucket& bucket : round.of(bundle)) {
    const UnitState& unit = states_->all()[bucket.bucket.unit];
    items.push_back({uses_places() ? bundle.parameters.data(bucket.parameter_offset) : unit.parameters.data,
                     unit.parameters.range.begin, unit.elements, unit.cut.slice(bucket.bucket.index),
                     uses_places()});
  }
  const auto begin = trace_->now();
  gather_.submit(std::move(items), "gather of the refreshed parameters of " + states_->names(bundle.buckets),
                 [this, &round, b, begin, done = std::move(done)] {
                   const std::size_t first = round.bundles[b].buckets.front().unit;
                   trace_->add(SpanKind::gather, Trace::Lane::communicate, begin, trace_->now(),
                               static_cast<int>(states_->all()[first].global_index));
                   store(round, b, done);
                 });
}

void ParameterRefresh::store(const BundleSweep& round, std::size_t b, const runtime::Handler& done) {
  const BundleSweep::Bundle& bundle = round.bundles[b];
  if (!uses_places()) return done();
  const auto stored = runtime::last_of(bundle.buckets.size(), [&bundle, done] {
    bundle.parameters.release();
    done();
  });
  for (const BundleSweep::Bucket& bucket : round.of(bundle)) {
    tier_->store(bucket.bucket.unit, bucket.bucket.index, bundle.parameters.data(bucket.parameter_offset), stored);
  }
}

void ParameterRefresh::refreshed(const ChunkSchedule::Bucket& bucket) {
  if (--buckets_missing_[bucket.unit] > 0) return;
  buckets_missing_[bucket.unit] = states_->all()[bucket.unit].cut.buckets();
  parameters_->refreshed(bucket.unit);
}

void ParameterRefresh::keep_all() {
  for (std::size_t u = 0; u < states_->all().size(); ++u) {
    if (states_->all()[u].trained()) parameters_->refreshed(u);
  }
}

}  // namespace ranvier::actors
