#include "actors/optimizer/update_sweep.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using offload::BucketPass;
using Copy = StateRecords::Copy;

UpdateSweep::UpdateSweep(Shared& shared, std::span<const std::size_t> order, Options options)
    : shared_(&shared),
      options_(std::move(options)),
      bundles_(shared.share, order),
      in_stream_order_(shared.refresh.is_local() && !shared.step.on_host()),
      pipeline_(shared.loop,
                {.buckets = bundles_.buckets.size(), .depth = shared.depth, .commit_mode = options_.commit_mode},
                stages()) {
  for (const UnitState& unit : shared.share.states->all()) stored_.emplace_back(unit.cut.buckets());
}

offload::BucketStages UpdateSweep::stages() {
  StateRecords& states = shared_->states;
  offload::BucketStages stages = {
      .fetch =
          [this, &states](const BucketPass& pass, const auto& done) {
            if (was_ahead(pass)) return states.fetch_weights(bucket_of(pass), pass.slot, done);
            states.fetch(bucket_of(pass), pass.slot, copy(), done);
          },
      .compute = [this](const BucketPass& pass, auto done) { update(pass, std::move(done)); },
      .store =
          [this, &states](const BucketPass& pass, auto done) {
            if (was_ahead(pass)) return done();
            states.store(bucket_of(pass), pass.slot, copy(), [this, pass, done] {
              if (copy() == Copy::spare) stored_[bucket_of(pass).unit][bucket_of(pass).index] = true;
              done();
            });
          },
      .refresh =
          [this](const BucketPass& pass, const auto& done) {
            updated(bundles_.buckets[pass.bucket].bundle);
            done();  // the update wrote the layers' parameters
          }};
  Stage& changing = stages.*states.changes_in(copy());
  changing = guarded(std::move(changing));
  return stages;
}

UpdateSweep::Stage UpdateSweep::guarded(Stage stage) {
  return [this, stage = std::move(stage)](const BucketPass& pass, runtime::Handler done) {
    if (shared_->guard == nullptr) return stage(pass, std::move(done));
    shared_->guard->before_change(bucket_of(pass), shared_->states.number_of(bucket_of(pass), copy()),
                                  [&stage, pass, done = std::move(done)] { stage(pass, done); });
  };
}

void UpdateSweep::begin(const runtime::AdamWOptions& adamw, runtime::Handler over) {
  adamw_ = &adamw;
  ++begun_;
  pipeline_.begin([over = std::move(over)](bool) { over(); });
  for (const std::size_t bucket : std::exchange(early_, {})) pipeline_.ready(bucket);
}

void UpdateSweep::resolve(bool commits) {
  if (!commits) --begun_;
  pipeline_.resolve(commits);
}

void UpdateSweep::allow(std::size_t bundles) {
  shared_->active = this;
  allowed_ = bundles;
  start_bundles();
}

void UpdateSweep::start_bundles() {
  const bool gathers = needs_gradients_ && shared_->gradients.needed();
  const bool refreshes = copy() == Copy::counts && shared_->refresh.uses_places();
  const auto has_place = [&] {
    return (!gathers || shared_->gradients.has_place()) && (!refreshes || shared_->refresh.has_place());
  };
  while (shared_->active == this && next_ < allowed_ && has_place()) {
    const std::size_t b = next_++;
    BundleSweep::Bundle& bundle = bundles_.bundles[b];
    bundle.buckets_missing = bundle.buckets.size();
    if (refreshes) shared_->refresh.take_place(bundle);
    if (gathers) {
      shared_->gradients.bring(bundles_, b, [this, b] { bundle_here(b); });
    } else {
      bundle_here(b);
    }
  }
}

void UpdateSweep::bundle_here(std::size_t b) {
  const BundleSweep::Bundle& bundle = bundles_.bundles[b];
  for (std::size_t i = 0; i < bundle.buckets.size(); ++i) {
    if (begun_ > 0) {
      pipeline_.ready(bundle.first + i);
    } else {
      early_.push_back(bundle.first + i);
    }
  }
}

void UpdateSweep::update(const BucketPass& pass, runtime::Handler done) {
  const BundleSweep::Bucket& bucket = bundles_.buckets[pass.bucket];
  const BundleSweep::Bundle& bundle = bundles_.bundles[bucket.bundle];
  const std::byte* const on_host = shared_->gradients.on_host(bucket.bucket);
  const BucketStep::Operands operands{
      .bucket = bucket.bucket,
      .slot = pass.slot,
      .copy = copy(),
      .gradients = on_host != nullptr ? on_host : bundle.gradients.data(bucket.gradient_offset),
      .gradients_on_host = on_host != nullptr,
      .parameters = bundle.parameters.data(bucket.parameter_offset)};
  if (was_ahead(pass)) {
    shared_->step.round(operands, std::move(done));
  } else {
    shared_->step.step(operands, *adamw_, std::move(done));
  }
  if (copy() == Copy::counts && in_stream_order_) shared_->refresh.refreshed(bucket.bucket);
}

void UpdateSweep::updated(std::size_t b) {
  BundleSweep::Bundle& bundle = bundles_.bundles[b];
  if (--bundle.buckets_missing > 0) return;
  bundle.gradients.release();
  if (options_.refreshed) shared_->refresh.stepped(bundles_, b, in_stream_order_, options_.refreshed);
  shared_->active->start_bundles();
}

void UpdateSweep::rewind() {
  allowed_ = next_ = 0;
  early_.clear();
  begun_ = std::max(begun_ - 1, 0);
}

std::int64_t UpdateSweep::commit() {
  std::int64_t commits = 0;
  for (const BundleSweep::Bucket& each : bundles_.buckets) {
    if (!has_stored(each.bucket)) continue;
    shared_->states.commit(each.bucket);
    ++commits;
  }
  return commits;
}

void UpdateSweep::forget_stored() {
  for (auto& buckets : stored_) buckets.assign(buckets.size(), false);
}

}  // namespace ranvier::actors
