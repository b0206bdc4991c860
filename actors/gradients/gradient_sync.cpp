#include "actors/gradients/gradient_sync.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {

GradientSync::Plan GradientSync::plan(PlanContext& planner, const Options& options) {
  Plan plan;
  if (planner.tiers.gradients != TierKind::device || planner.share.states->shards_gradients()) {
    plan.microbatch = MicrobatchReduction::plan(planner, options.prefetch);
  }
  plan.tied = TiedUnits::plan(planner, options.tied);
  plan.batch = BatchReduction::plan(planner, options.every_step_counts);
  return plan;
}

GradientSync::GradientSync(const RankContext& context, const ModelShare& share, const Plan& plan,
                           GradientRecords* records)
    : loop_(&context.loop),
      compute_(context.compute),
      stage_(share.stage.get()),
      states_(share.states.get()),
      tied_(context, share, plan.tied, records),
      batch_(context, share, plan.batch, tied_, records),
      own_places_(stage_->layers()),
      uses_missing_(states_->all().size()) {
  if (plan.microbatch) {
    microbatch_ = std::make_unique<MicrobatchReduction>(
        context, share, *plan.microbatch, records, [this](const models::Stage::PassStep& step) { complete(step); });
  }
  std::vector<std::size_t> uses(states_->all().size(), 0);
  for (const models::Stage::UnitUse& use : stage_->uses()) {
    own_places_[use.layer].push_back(states_->all()[use.unit].gradients[uses[use.unit]++].data);
  }
}

void GradientSync::start(int microbatches, runtime::Handler done) {
  microbatches_ = microbatches;
  for (std::size_t u = 0; u < uses_missing_.size(); ++u) uses_missing_[u] = states_->all()[u].gradients.size();
  if (microbatch_) microbatch_->start(microbatches);
  batch_.start(std::move(done));
}

std::uint64_t GradientSync::announce(const models::Stage::Pass& pass, int microbatch) {
  return microbatch_ ? microbatch_->announce(pass, accumulates(microbatch)) : 0;
}

void GradientSync::when_ready(std::uint64_t step, runtime::Handler handler) {
  if (!microbatch_) return loop_->post(std::move(handler));
  microbatch_->when_ready(step, std::move(handler));
}

std::span<std::byte* const> GradientSync::places(std::uint64_t number,
                                                 const models::Stage::PassStep& writes) const {
  return microbatch_ ? microbatch_->places(number) : own_places_[stage_->layer_of(writes)];
}

void GradientSync::queued(std::uint64_t number, const models::Stage::PassStep& writes) {
  if (!spoils_by_ || stage_->layer_of(writes) != 0 || stage_->uses_of(writes).empty()) return;
  const std::size_t index = stage_->uses()[stage_->uses_of(writes).front()].index_in_layer;
  runtime::scale(compute_, places(number, writes)[index], states_->precision().gradient,
                 *std::exchange(spoils_by_, std::nullopt), 1);
}

void GradientSync::written(std::uint64_t number, const models::Stage::PassStep& writes, int microbatch) {
  if (!microbatch_) return complete(writes);
  microbatch_->written(number, microbatch);
}

/// Called when the last microbatch's gradients of these uses are complete.
void GradientSync::complete(const models::Stage::PassStep& writes) {
  for (const std::size_t use : stage_->uses_of(writes)) {
    const std::size_t unit = stage_->uses()[use].unit;
    if (--uses_missing_[unit] > 0) continue;
    tied_.sum_uses(unit, [this, unit] { batch_.summed(unit); });
  }
}

std::vector<Wait> GradientSync::waits() const {
  std::vector<Wait> all = batch_.waits();
  const auto add = [&](std::vector<Wait> more) {
    for (Wait& wait : more) all.push_back(std::move(wait));
  };
  if (microbatch_) add(microbatch_->waits());
  add(tied_.waits());
  oldest_first(all);
  return all;
}

std::vector<int> GradientSync::peers() const {
  std::vector<int> all = batch_.peers();
  const auto add = [&](const std::vector<int>& more) { all.insert(all.end(), more.begin(), more.end()); };
  if (microbatch_) add(microbatch_->peers());
  add(tied_.peers());
  return all;
}

}  // namespace ranvier::actors
