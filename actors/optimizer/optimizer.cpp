#include "actors/optimizer/optimizer.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using offload::CommitMode;

Optimizer::Plan Optimizer::plan(PlanContext& planner, bool every_step_counts) {
  const TierOptions& tiers = planner.tiers;
  Plan plan;
  if (!every_step_counts)
    plan.commit_mode = tiers.commit == Commit::flip ? CommitMode::by_flip : CommitMode::on_resolve;
  const bool flips = plan.commit_mode == CommitMode::by_flip;
  std::size_t buckets = 0;
  for (const UnitState& unit : planner.share.states->all())
    if (unit.trained() && !unit.optimizer_on_device()) buckets += unit.cut.buckets();
  plan.depth = std::max<std::size_t>(1, std::min(tiers.depth, buckets));
  plan.gradients = GradientGather::plan(planner);
  plan.states = StateRecords::plan(planner, flips);
  plan.step = BucketStep::plan(planner, plan.depth);
  plan.refresh = ParameterRefresh::plan(planner);
  std::size_t updated_units = 0;
  if (tiers.rule == UpdateRule::muon)
    updated_units = BundleSweep(planner.share, plan.order(planner.share.chunks)).updated_units;
  plan.matrices = MatrixExchange::plan(planner, updated_units);
  expect(plan.matrices.updates.slots == 0 || (!flips && tiers.step == StepLocation::device),
         "Muon's matrices are updated into spare copies, or on the host");
  return plan;
}

std::vector<std::size_t> Optimizer::Plan::order(const ChunkSchedule& chunks) const {
  return commit_mode == CommitMode::on_resolve ? chunks.from_the_front() : chunks.as_reduced();
}

Optimizer::Optimizer(const RankContext& context, const ModelShare& share, const Plan& plan,
                     ParameterStore& parameters, OffloadedParameters* offloaded_parameters,
                     OffloadedGradients* gradients)
    : commit_mode_(plan.commit_mode),
      shared_{.loop = context.loop,
              .share = share,
              .depth = plan.depth,
              .gradients = {context, share, plan.gradients, gradients},
              .states = {context, share, plan.states, offloaded_parameters},
              .step = {context, share, plan.step, shared_.states},
              .refresh = {context, share, plan.refresh, parameters, offloaded_parameters},
              .matrices = {context, share, plan.matrices}},
      ahead_(commit_mode_ == CommitMode::by_flip
                 ? std::make_unique<UpdateSweep>(shared_, plan.order(share.chunks),
                                                 UpdateSweep::Options{.commit_mode = CommitMode::by_flip})
                 : nullptr),
      steps_(shared_, ahead_ ? share.chunks.from_the_front() : plan.order(share.chunks),
             {.commit_mode = ahead_ ? CommitMode::always : commit_mode_,
              .refreshed = [this] { bundle_refreshed(); },
              .ahead = ahead_.get()}) {
  shared_.active = ahead_ ? ahead_.get() : &steps_;
}

void Optimizer::access_state(StateRecords::Access access) {
  expect(storing_.empty(), "states are {} during an update",
         access.kind == offload::IoKind::read ? "read" : "written");
  shared_.states.access(std::move(access));
}

void Optimizer::begin(const runtime::UpdateOptions& unclipped) {
  newest_ = std::make_shared<BatchStep>();
  newest_->adamw = unclipped;
  newest_->bundles_missing = shared_.share.chunks.bundles.size();
  storing_.push_back(newest_);
  if (newest_->bundles_missing == 0) {
    part_over(*newest_);
  } else {
    refreshing_.push_back(newest_);
  }
  if (storing_.size() == 1) begin_states();
}

void Optimizer::reduced(std::size_t chunk) {
  const std::size_t bundles = shared_.share.chunks.chunks[chunk].end;
  if (ahead_) return ahead_->allow(bundles);
  if (commit_mode_ == CommitMode::always) steps_.allow(bundles);
}

void Optimizer::decide(const runtime::UpdateOptions* adamw, runtime::Handler done) {
  const auto step = newest_;
  step->done = std::move(done);
  step->answered = shared_.loop.now();
  step->commits = adamw != nullptr;
  answers_.skipped += adamw == nullptr;
  shared_.refresh.begin();
  if (ahead_) {
    if (adamw != nullptr) {
      // Only the gradient scale can differ from the expected options. The decision is the same on all ranks.
      step->as_ahead = adamw->gradient_scale == step->adamw.gradient_scale;
      ++(step->as_ahead ? answers_.flipped : answers_.again);
      step->adamw = *adamw;
    }
    if (newest_has_pipeline()) end_ahead();
  } else if (commit_mode_ == CommitMode::always) {
    expect(adamw != nullptr, "a step is skipped where every step counts");
  } else if (adamw != nullptr) {
    step->adamw = *adamw;
    steps_.allow_all();
    if (newest_has_pipeline()) steps_.resolve(true);
  } else {
    if (newest_has_pipeline()) steps_.resolve(false);
    keep_parameters();
  }
  part_over(*step);
}

void Optimizer::when_stored(runtime::Handler handler) {
  if (storing_.empty() || storing_.back() != newest_) return handler();
  newest_->stored = std::move(handler);
}

void Optimizer::begin_states() {
  const auto step = storing_.front();
  if (ahead_) {
    ahead_->forget_stored();
    if (step->commits && !shared_.gradients.needed()) return ahead_over();
    ahead_->begin(step->adamw, [this] { ahead_over(); });
    if (step->commits) end_ahead();
    return;
  }
  if (step->commits == false) return shared_.loop.post([this] { stored(); });
  steps_.begin(step->adamw, [this] { stored(); });
  if (step->commits && commit_mode_ != CommitMode::always) steps_.resolve(true);
}

void Optimizer::end_ahead() { ahead_->resolve(shared_.gradients.needed()); }

void Optimizer::ahead_over() {
  const auto step = storing_.front();
  ahead_->rewind();
  if (!*step->commits) {
    // Only now, because the next batch overwrites gradients.
    keep_parameters();
    return stored();
  }
  if (step->as_ahead) {
    answers_.buckets_ahead += ahead_->commit();
    answers_.buckets += static_cast<std::int64_t>(steps_.buckets());
  } else {
    ahead_->forget_stored();
  }
  steps_.need_gradients(!step->as_ahead);
  steps_.allow(0);
  steps_.begin(step->adamw, [this] { stored(); });
  steps_.allow_all();
}

void Optimizer::bundle_refreshed() {
  const auto step = refreshing_.front();
  if (--step->bundles_missing > 0) {
    if (shared_.refresh.uses_places()) shared_.active->start_bundles();
    return;
  }
  refreshing_.pop_front();
  steps_.rewind();
  if (ahead_) ahead_->allow(0);
  part_over(*step);
}

void Optimizer::keep_parameters() {
  shared_.refresh.keep_all();
  if (refreshing_.empty()) return;
  const auto step = refreshing_.front();
  refreshing_.pop_front();
  part_over(*step);
}

void Optimizer::stored() {
  const auto step = storing_.front();
  storing_.pop_front();
  if (step->stored) std::exchange(step->stored, nullptr)();
  if (!storing_.empty()) begin_states();
  part_over(*step);
}

void Optimizer::part_over(BatchStep& step) {
  if (--step.parts_missing > 0) return;
  ++answers_.steps;
  answers_.seconds += runtime::seconds(shared_.loop.now() - step.answered);
  shared_.loop.post(std::exchange(step.done, nullptr));
}

std::vector<Wait> Optimizer::waits() const {
  std::vector<Wait> all = shared_.gradients.waits();
  append(all, shared_.refresh.waits());
  append(all, shared_.matrices.waits());
  oldest_first(all);
  return all;
}

std::vector<int> Optimizer::peers() const {
  std::vector<int> all = shared_.gradients.peers();
  append(all, shared_.refresh.peers());
  append(all, shared_.matrices.peers());
  return all;
}

}  // namespace ranvier::actors
