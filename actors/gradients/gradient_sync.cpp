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
    : context_(&context),
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
  for (const models::StageSlices::UnitUse& use : stage_->uses()) {
    own_places_[use.layer].push_back(states_->all()[use.unit].gradients[uses[use.unit]++].data);
  }
}

void GradientSync::start(int microbatches, runtime::Handler done) {
  microbatches_ = microbatches;
  for (std::size_t u = 0; u < uses_missing_.size(); ++u) uses_missing_[u] = states_->all()[u].gradients.size();
  if (microbatch_) microbatch_->start(microbatches);
  batch_.start(std::move(done));
}

std::uint64_t GradientSync::announce(const Announced& pass) {
  const std::uint64_t first = uses_.next();
  if (!pass.backward) return first;
  for (const models::Stage::PassStep& step : pass.steps) {
    if (uses(step)) uses_.add({step, pass.microbatch});
  }
  if (microbatch_) microbatch_->announce(pass.steps, accumulates(pass.microbatch));
  return first;
}

void GradientSync::when_ready(std::uint64_t use, runtime::Handler handler) {
  if (!microbatch_) return context_->loop.post(std::move(handler));
  microbatch_->when_ready(use, std::move(handler));
}

void GradientSync::provide(std::uint64_t use, models::StepArrays& arrays) {
  const auto& [step, microbatch] = uses_[use];
  arrays.gradients = microbatch_ ? microbatch_->places(use) : own_places_[stage_->layer_of(step)];
  arrays.accumulate = accumulates(microbatch);
}

bool GradientSync::queued(std::uint64_t use) {
  const auto [step, microbatch] = uses_[use];
  if (spoils_by_ && stage_->layer_of(step) == 0 && !stage_->uses_of(step).empty()) {
    models::StepArrays arrays;
    provide(use, arrays);
    const std::size_t index = stage_->uses()[stage_->uses_of(step).front()].index_in_layer;
    runtime::scale(context_->compute, arrays.gradients[index], states_->precision().gradient,
                   *std::exchange(spoils_by_, std::nullopt), 1);
  }
  if (microbatch_ || microbatch + 1 == microbatches_) return true;
  uses_.remove(use);
  return false;
}

void GradientSync::done(std::uint64_t use) {
  const auto [step, microbatch] = uses_.remove(use);
  if (!microbatch_) return complete(step);
  microbatch_->written(use, microbatch);
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
  if (microbatch_) append(all, microbatch_->waits());
  append(all, tied_.waits());
  oldest_first(all);
  return all;
}

std::vector<int> GradientSync::peers() const {
  std::vector<int> all = batch_.peers();
  if (microbatch_) append(all, microbatch_->peers());
  append(all, tied_.peers());
  return all;
}

}  // namespace ranvier::actors
