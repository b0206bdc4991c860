#include "actors/optimizer/gradient_gather.hpp"

#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

namespace {

constexpr std::size_t bundles_at_a_time = 2;  // one is gathered while the other is used for updates

}  // namespace

GradientGather::Plan GradientGather::plan(PlanContext& planner) {
  const auto& hops = planner.share.flow.gather_gradient;
  const bool in_place =
      OffloadedGradients::stepped_in_place(planner) && planner.share.states->optimizers_on_device() == 0;
  const bool needed = !hops.empty() || (planner.tiers.gradients != TierKind::device && !in_place);
  return plan_gather(planner, gradient_bytes, "gradients for the optimizer", needed ? bundles_at_a_time : 0,
                     {.hops = hops,
                      .dtype = planner.share.states->precision().gradient,
                      .family = 4,
                      .name = "gradients for the optimizer",
                      .wire = &collectives::WireTypes::reduce});
}

GradientGather::GradientGather(const RankContext& context, const ModelShare& share, const Plan& plan,
                               OffloadedGradients* records)
    : context_(&context),
      states_(share.states.get()),
      records_(records),
      needed_(!plan.gather.hops.empty() || (records != nullptr && !records->stepped_in_place())),
      gather_(context, *share.column, plan.gather),
      places_(context.arena, plan.places) {}

void GradientGather::bring(BundleSweep& round, std::size_t number, runtime::Handler there) {
  BundleSweep::Bundle& bundle = round.bundles[number];
  bundle.gradients = places_.take();
  const auto fetches =
      std::ranges::count_if(bundle.buckets, [this](const ChunkSchedule::Bucket& bucket) { return needed(bucket); });
  const auto copied =
      runtime::last_of(records_ != nullptr ? static_cast<std::size_t>(fetches) : 1,
                       [this, me = brought_++, &round, &bundle, there = std::move(there)] {
                         gathers_.run(me, [this, &round, &bundle, there] { gather(round, bundle, there); });
                       });
  const std::size_t width = runtime::size_of(states_->precision().gradient);
  for (const BundleSweep::Bucket& bucket : round.of(bundle)) {
    const auto& [u, index] = bucket.bucket;
    if (!needed(bucket.bucket)) continue;
    const UnitState& unit = states_->all()[u];
    // This rank's part of the gathered range.
    const std::size_t before =
        unit.cut.elements({unit.optimizer.begin, unit.reduced.begin - unit.optimizer.begin}, index);
    std::byte* to = bundle.gradients.data(bucket.gradient_offset) + before * width;
    if (records_ != nullptr) {
      records_->fetch_reduced(u, index, to, copied);
    } else {
      const auto [begin, count, runs] = unit.cut.spread(unit.reduced, index);
      runtime::copy(context_->compute, to, {}, unit.gradients.front().at(begin), runs, width, count);
    }
  }
  if (records_ != nullptr) return;
  context_->loop.after_work(
      context_->compute,
      {"optimizer", "the copy of the gradients of bundle", {}, static_cast<std::int64_t>(number)}, copied);
}

void GradientGather::gather(const BundleSweep& round, const BundleSweep::Bundle& bundle, runtime::Handler there) {
  std::vector<HopPipeline::Item> items;
  for (const BundleSweep::Bucket& bucket : round.of(bundle)) {
    const UnitState& unit = states_->all()[bucket.bucket.unit];
    items.push_back({bundle.gradients.data(bucket.gradient_offset), unit.optimizer.begin, unit.elements,
                     unit.cut.slice(bucket.bucket.index), true});
  }
  gather_.submit(std::move(items), "gather of the gradients of " + states_->names(bundle.buckets),
                 std::move(there));
}

}  // namespace ranvier::actors
