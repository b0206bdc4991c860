#include "actors/optimizer/optimizer.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ranvier::actors {

using offload::BucketPass;
using runtime::Trace;

Optimizer::Plan Optimizer::plan(PlanContext& planner, const Options& options) {
  const TierOptions& tiers = planner.tiers;
  Plan plan;
  plan.every_step_counts = options.every_step_counts;
  plan.flips = tiers.commit == Commit::flip && !options.every_step_counts;
  std::size_t buckets = 0;
  for (const ChunkSchedule::Bundle& bundle : planner.share.chunks.bundles) buckets += bundle.buckets.size();
  const bool on_device = tiers.optimizer == TierKind::device;
  plan.depth = std::max<std::size_t>(1, on_device ? buckets : std::min(tiers.depth, buckets));
  plan.gradients = GradientGather::plan(planner);
  plan.states = StateRecords::plan(planner, plan.flips);
  plan.step = BucketStep::plan(planner, plan.depth);
  plan.refresh = ParameterRefresh::plan(planner);
  return plan;
}

Optimizer::Optimizer(const RankContext& context, const ModelShare& share, const Plan& plan,
                     ParameterStore& parameters, ParameterRecords* parameter_records, GradientRecords* gradients)
    : loop_(&context.loop),
      share_(&share),
      plan_(plan),
      gradients_(context, share, plan.gradients, gradients),
      states_(context, share, plan.states),
      step_(context, share, plan.step, states_),
      refresh_(context, share, plan.refresh, parameters, parameter_records),
      in_stream_order_(refresh_.is_local() && !step_.on_host()),
      commit_(CommitPolicy::make(*this)) {}

void Optimizer::access_state(StateRecords::Access access) {
  expect(storing_.empty(), "states are {} during an update",
         access.kind == offload::IoKind::read ? "read" : "written");
  states_.access(std::move(access));
}

void Optimizer::begin(const runtime::AdamWOptions& unclipped) {
  newest_ = std::make_shared<BatchStep>();
  newest_->adamw = unclipped;
  newest_->bundles_missing = steps_.bundles.size();
  storing_.push_back(newest_);
  if (steps_.bundles.empty()) {
    part_over(*newest_);
  } else {
    refreshing_.push_back(newest_);
  }
  if (storing_.size() == 1) commit_->begin_states();
}

void Optimizer::reduced(std::size_t chunk) { commit_->reduced(share_->chunks.chunks[chunk]); }

void Optimizer::decide(const runtime::AdamWOptions* adamw, runtime::Handler done) {
  const auto step = newest_;
  step->done = std::move(done);
  step->answered = loop_->now();
  step->counts = adamw != nullptr;
  answers_.skipped += adamw == nullptr;
  refresh_.begin();
  adamw != nullptr ? commit_->counts(*adamw) : commit_->skips();
  part_over(*step);
}

void Optimizer::when_stored(runtime::Handler handler) {
  if (storing_.empty() || storing_.back() != newest_) return handler();
  newest_->stored = std::move(handler);
}

void Optimizer::begin_bundles() {
  const bool refreshes = round_ == &steps_ && refresh_.uses_places();
  // If the step is committed as expected, and gradients pass through buffers, all its buckets were updated ahead.
  const bool gathers =
      gradients_.needed() && (round_ != &steps_ || refreshing_.empty() || !refreshing_.front()->as_ahead);
  const auto has_place = [&] {
    return (!gathers || gradients_.has_place()) && (!refreshes || refresh_.has_place());
  };
  BundleSweep& round = *round_;
  while (round_ == &round && round.next < round.may_begin && has_place()) {
    const std::size_t b = round.next++;
    round.bundles[b].buckets_missing = round.bundles[b].buckets.size();
    if (refreshes) refresh_.take_place(round.bundles[b]);
    if (gathers) {
      gradients_.bring(round, b, [this, b] { bundle_here(b); });
    } else {
      bundle_here(b);
    }
  }
}

void Optimizer::bundle_here(std::size_t b) {
  const BundleSweep::Bundle& bundle = round_->bundles[b];
  for (std::size_t i = 0; i < bundle.buckets.size(); ++i) ready(bundle.first + i);
}

void Optimizer::ready(std::size_t bucket) {
  if (storing_.front() == refreshing_.front()) {
    round_->pipeline->ready(bucket);
  } else {
    refreshing_.front()->ready.push_back(bucket);
  }
}

BucketStep::Operands Optimizer::operands(const BundleSweep& round, const BucketPass& pass) const {
  const BundleSweep::Bucket& bucket = round.buckets[pass.bucket];
  const BundleSweep::Bundle& bundle = round.bundles[bucket.bundle];
  const std::byte* const on_host = gradients_.on_host(bucket.bucket);
  return {.bucket = bucket.bucket,
          .slot = pass.slot,
          .gradients = on_host != nullptr ? on_host : bundle.gradients.data(bucket.gradient_offset),
          .gradients_on_host = on_host != nullptr,
          .parameters = bundle.parameters.data(bucket.parameter_offset)};
}

void Optimizer::bucket_stepped(std::size_t b) {
  BundleSweep::Bundle& bundle = steps_.bundles[b];
  if (--bundle.buckets_missing > 0) return;
  bundle.gradients.release();
  refresh_.stepped(steps_, b, in_stream_order_, [this] { bundle_refreshed(); });
  begin_bundles();
}

void Optimizer::bundle_refreshed() {
  const auto step = refreshing_.front();
  if (--step->bundles_missing > 0) {
    if (refresh_.uses_places()) begin_bundles();
    return;
  }
  refreshing_.pop_front();
  steps_.rewind();
  commit_->refreshed();
  part_over(*step);
}

void Optimizer::stored() {
  const auto step = storing_.front();
  storing_.pop_front();
  if (step->stored) std::exchange(step->stored, nullptr)();
  if (!storing_.empty()) commit_->begin_states();
  part_over(*step);
}

void Optimizer::part_over(BatchStep& step) {
  if (--step.parts_missing > 0) return;
  ++answers_.steps;
  answers_.seconds += runtime::seconds(loop_->now() - step.answered);
  loop_->post(std::exchange(step.done, nullptr));
}

std::vector<Wait> Optimizer::waits() const {
  std::vector<Wait> all = gradients_.waits();
  append(all, refresh_.waits());
  oldest_first(all);
  return all;
}

std::vector<int> Optimizer::peers() const {
  std::vector<int> all = gradients_.peers();
  append(all, refresh_.peers());
  return all;
}

}  // namespace ranvier::actors
