#include "actors/gradients/gradient_sync.hpp"

#include <utility>

namespace ranvier::actors {

GradientSync::Plan GradientSync::plan(PlanContext& planner, const Options& options) {
  Plan plan;
  plan.microbatch = MicrobatchReduction::plan(planner, options.prefetch);
  plan.tied = TiedUnits::plan(planner, options.tied);
  plan.batch = BatchReduction::plan(planner, options.every_step_counts);
  return plan;
}

GradientSync::GradientSync(const RankContext& context, const ModelShare& share, const Plan& plan,
                           OffloadedGradients* records)
    : stage_(share.stage.get()),
      states_(share.states.get()),
      tied_(context, share, plan.tied, records),
      batch_(context, share, plan.batch, tied_, records),
      microbatch_(context, share, plan.microbatch, records,
                  [this](const models::Stage::PassStep& step) { complete(step); }),
      uses_missing_(states_->all().size()) {}

void GradientSync::start(int microbatches, runtime::Handler done) {
  for (std::size_t u = 0; u < uses_missing_.size(); ++u) uses_missing_[u] = states_->all()[u].gradients.size();
  microbatch_.start(microbatches);
  batch_.start(std::move(done));
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
  append(all, microbatch_.waits());
  append(all, tied_.waits());
  oldest_first(all);
  return all;
}

std::vector<int> GradientSync::peers() const {
  std::vector<int> all = batch_.peers();
  append(all, microbatch_.peers());
  append(all, tied_.peers());
  return all;
}

}  // namespace ranvier::actors
