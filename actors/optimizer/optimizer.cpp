#include "actors/optimizer/optimizer.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using offload::CommitMode;

Optimizer::Plan Optimizer::plan(PlanContext& planner, const Options& options) {
  const TierOptions& tiers = planner.tiers;
  Plan plan;
  plan.every_step_counts = options.every_step_counts;
  plan.flips = tiers.commit == Commit::flip && !options.every_step_counts;
  std::size_t buckets = 0;
  for (const UnitState& unit : planner.share.states->all())
    if (unit.trained() && !unit.optimizer_on_device()) buckets += unit.cut.buckets();
  plan.depth = std::max<std::size_t>(1, std::min(tiers.depth, buckets));
  plan.gradients = GradientGather::plan(planner);
  plan.states = StateRecords::plan(planner, plan.flips);
  plan.step = BucketStep::plan(planner, plan.depth);
  plan.refresh = ParameterRefresh::plan(planner);
  plan.matrices = MatrixExchange::plan(
      planner, BundleSweep(planner.share, order_of_updates(plan, planner.share)).updated_units);
  expect(plan.matrices.updates.slots == 0 || (!plan.flips && tiers.step == StepLocation::device),
         "Muon's matrices are updated into spare copies, or on the host");
  return plan;
}

std::vector<std::size_t> Optimizer::order_of_updates(const Plan& plan, const ModelShare& share) {
  return plan.every_step_counts ? share.chunks.as_reduced() : share.chunks.from_the_front();
}

Optimizer::Optimizer(const RankContext& context, const ModelShare& share, const Plan& plan,
                     ParameterStore& parameters, ParameterRecords* parameter_records, GradientRecords* gradients)
    : share_(&share),
      plan_(plan),
      gradients_(context, share, plan.gradients, gradients),
      states_(context, share, plan.states),
      step_(context, share, plan.step, states_),
      refresh_(context, share, plan.refresh, parameters, parameter_records),
      matrices_(context, share, plan.matrices),
      parameter_records_(parameter_records),
      shared_{context.loop, share, plan.depth, gradients_, states_, step_, refresh_, matrices_},
      ahead_(plan.flips ? std::make_unique<UpdateSweep>(shared_, share.chunks.as_reduced(),
                                                        UpdateSweep::Options{.commit_mode = CommitMode::by_flip})
                        : nullptr),
      steps_(shared_, order_of_updates(plan, share),
             {.commit_mode = plan.every_step_counts || plan.flips ? CommitMode::always : CommitMode::on_resolve,
              .refreshed = [this] { bundle_refreshed(); },
              .ahead = ahead_.get()}) {
  shared_.active = ahead_ ? ahead_.get() : &steps_;
}

void Optimizer::access_state(StateRecords::Access access, std::span<std::byte> blocks) {
  const bool reads = access.kind == offload::IoKind::read;
  expect(storing_.empty(), "states are {} during an update", reads ? "read" : "written");
  if (!is_offloaded(access.unit, access.array)) return states_.access(std::move(access));
  expect(reads, "offloaded parameters are written");
  parameter_records_->read(access.unit, access.begin, access.values, blocks, std::move(access.done));
}

StatePlace Optimizer::place(std::size_t unit, std::size_t copy, StateKind kind, std::size_t begin) const {
  return is_offloaded(unit, kind) ? parameter_records_->place(unit, begin) : states_.place(unit, copy, kind, begin);
}

bool Optimizer::is_offloaded(std::size_t unit, StateKind kind) const {
  return kind == StateKind::parameters && !share_->states->all()[unit].on_device();
}

void Optimizer::begin(const runtime::AdamWOptions& unclipped) {
  newest_ = std::make_shared<BatchStep>();
  newest_->adamw = unclipped;
  newest_->bundles_missing = share_->chunks.bundles.size();
  storing_.push_back(newest_);
  if (newest_->bundles_missing == 0) {
    part_over(*newest_);
  } else {
    refreshing_.push_back(newest_);
  }
  if (storing_.size() == 1) begin_states();
}

void Optimizer::reduced(std::size_t chunk) {
  const std::size_t bundles = share_->chunks.chunks[chunk].end;
  if (ahead_) return ahead_->allow(bundles);
  if (plan_.every_step_counts) steps_.allow(bundles);
}

void Optimizer::decide(const runtime::AdamWOptions* adamw, runtime::Handler done) {
  const auto step = newest_;
  step->done = std::move(done);
  step->answered = shared_.loop.now();
  step->commits = adamw != nullptr;
  answers_.skipped += adamw == nullptr;
  refresh_.begin();
  if (ahead_) {
    if (adamw != nullptr) {
      // Only the gradient scale can differ from the expected options. The decision is the same on all ranks.
      step->as_ahead = adamw->gradient_scale == step->adamw.gradient_scale;
      ++(step->as_ahead ? answers_.flipped : answers_.again);
      step->adamw = *adamw;
    }
    if (newest_has_pipeline()) end_ahead();
  } else if (plan_.every_step_counts) {
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
    if (step->commits && !gradients_.needed()) return ahead_over();
    ahead_->begin(step->adamw, [this] { ahead_over(); });
    if (step->commits) end_ahead();
    return;
  }
  if (step->commits == false) return shared_.loop.post([this] { stored(); });
  steps_.begin(step->adamw, [this] { stored(); });
  if (step->commits && !plan_.every_step_counts) steps_.resolve(true);
}

void Optimizer::end_ahead() { ahead_->resolve(gradients_.needed()); }

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
    if (refresh_.uses_places()) shared_.active->start_bundles();
    return;
  }
  refreshing_.pop_front();
  steps_.rewind();
  if (ahead_) ahead_->allow(0);
  part_over(*step);
}

void Optimizer::keep_parameters() {
  refresh_.keep_all();
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
  std::vector<Wait> all = gradients_.waits();
  append(all, refresh_.waits());
  append(all, matrices_.waits());
  oldest_first(all);
  return all;
}

std::vector<int> Optimizer::peers() const {
  std::vector<int> all = gradients_.peers();
  append(all, refresh_.peers());
  append(all, matrices_.peers());
  return all;
}

}  // namespace ranvier::actors
