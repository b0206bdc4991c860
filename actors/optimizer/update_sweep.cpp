#include "actors/optimizer/update_sweep.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using offload::BucketPass;
using offload::IoKind;
using Copy = StateRecords::Copy;

UpdateSweep::UpdateSweep(Shared& shared, std::span<const std::size_t> order, Options options)
    : shared_(&shared),
      options_(std::move(options)),
      bundles_(shared.share, order),
      in_stream_order_(shared.refresh.is_local() && !shared.step.on_host()),
      pipeline_(shared.loop,
                {.buckets = bundles_.buckets.size(),
                 .depth = shared.depth,
                 .commit_mode = options_.commit_mode,
                 .without_slot = without_slot()},
                stages()),
      matrix_units_(shared.share.states->all().size()),
      exchanges_(bundles_.matrix_units.size()) {
  for (const UnitState& unit : shared.share.states->all()) stored_.emplace_back(unit.cut.buckets());
}

std::vector<bool> UpdateSweep::without_slot() const {
  std::vector<bool> without;
  for (const BundleSweep::Bucket& each : bundles_.buckets)
    without.push_back(shared_->states.on_device(each.bucket));
  return without;
}

offload::BucketStages UpdateSweep::stages() {
  using Stages = offload::BucketStages;
  // A stage that changes the destination copy waits for the guard.
  const auto guarded = [this](Stages::Stage Stages::* which,
                              void (UpdateSweep::*stage)(const BucketPass&, const runtime::Handler&)) {
    return [=, this](const BucketPass& pass, runtime::Handler done) {
      const ChunkSchedule::Bucket& bucket = bucket_of(pass);
      if (!shared_->guard || shared_->states.changes_in(bucket, copy()) != which) return (this->*stage)(pass, done);
      shared_->guard(bucket, shared_->states.number_of(bucket, copy()),
                     [=, this, done = std::move(done)] { (this->*stage)(pass, done); });
    };
  };
  return {.fetch = guarded(&Stages::fetch, &UpdateSweep::fetch),
          .compute = guarded(&Stages::compute, &UpdateSweep::update),
          .store = guarded(&Stages::store, &UpdateSweep::store),
          .refresh = [this](const BucketPass& pass, const auto& done) {
            passed(bucket_of(pass), pass_of(pass));
            updated(bundles_.buckets[pass.bucket].bundle);
            done();  // the update wrote the layers' parameters
          }};
}

void UpdateSweep::fetch(const BucketPass& pass, const runtime::Handler& done) {
  const ChunkSchedule::Bucket& bucket = bucket_of(pass);
  const bool second = pass_of(pass) == Pass::matrices;
  if (!second && !was_ahead(pass)) return shared_->states.fetch(bucket, pass.slot, copy(), done);
  const auto fetch_weights = [=, this, &bucket] {
    shared_->states.move_weights(IoKind::read, bucket, pass.slot, done);
  };
  if (!second || has_stored(bucket)) return fetch_weights();
  fetches_[{bucket.unit, bucket.index}] = fetch_weights;
}

void UpdateSweep::store(const BucketPass& pass, const runtime::Handler& done) {
  const ChunkSchedule::Bucket& bucket = bucket_of(pass);
  if (was_ahead(pass) || !updates(bucket)) return done();
  if (pass_of(pass) == Pass::matrices) return shared_->states.move_weights(IoKind::write, bucket, pass.slot, done);
  shared_->states.store(bucket, pass.slot, copy(), [=, this, &bucket] {
    if (copy() == Copy::spare || pass_of(pass) == Pass::momentum) stored(bucket);
    done();
  });
}

bool UpdateSweep::gathers(const BundleSweep::Bundle& bundle) const {
  if (bundle.pass == Pass::matrices) return false;
  return std::ranges::any_of(bundle.buckets, [this](const ChunkSchedule::Bucket& bucket) {
    const bool updates_now = needs_gradients_ ? updates(bucket) : shared_->states.on_device(bucket);
    return updates_now && shared_->gradients.needed(bucket);
  });
}

void UpdateSweep::begin(const runtime::UpdateOptions& adamw, runtime::Handler over) {
  adamw_ = &adamw;
  ++begun_;
  if (!bundles_.matrix_units.empty()) forget_stored();
  pipeline_.begin([over = std::move(over)](bool) { over(); });
  for (const std::size_t bucket : std::exchange(early_, {})) pipeline_.ready(bucket);
}

void UpdateSweep::resolve(bool commits) {
  if (!commits) --begun_;
  pipeline_.resolve(commits);
  if (commits) return;
  for (const auto& [bucket, fetch] : std::exchange(fetches_, {})) fetch();  // no first pass will be stored
}

void UpdateSweep::stored(const ChunkSchedule::Bucket& bucket) {
  stored_[bucket.unit][bucket.index] = true;
  if (const auto waiting = fetches_.extract({bucket.unit, bucket.index})) waiting.mapped()();
}

void UpdateSweep::allow(std::size_t bundles) {
  shared_->active = this;
  allowed_ = bundles;
  start_bundles();
}

bool UpdateSweep::refreshes(const BundleSweep::Bundle& bundle) const {
  return copy() == Copy::counts && shared_->refresh.uses_places() && bundle.pass != Pass::momentum;
}

bool UpdateSweep::may_start(const BundleSweep::Bundle& bundle) {
  if (bundle.number >= allowed_ || (gathers(bundle) && !shared_->gradients.has_place()) ||
      (refreshes(bundle) && !shared_->refresh.has_place()))
    return false;
  for (const ChunkSchedule::Bucket& bucket : bundle.buckets) {
    const UnitState& unit = shared_->share.states->all()[bucket.unit];
    MatrixUnit& matrices = matrix_units_[bucket.unit];
    if (unit.matrices.empty()) continue;
    if (bundle.pass == Pass::matrices && !matrices.orthogonal) return false;
    if (matrices.update.data() != nullptr) continue;
    if (!shared_->matrices.updates().has_free()) return false;
    matrices = {.update = shared_->matrices.updates().take(), .buckets_missing = unit.cut.buckets()};
  }
  return true;
}

void UpdateSweep::passed(const ChunkSchedule::Bucket& bucket, Pass pass) {
  const UnitState& unit = shared_->share.states->all()[bucket.unit];
  MatrixUnit& matrices = matrix_units_[bucket.unit];
  if (unit.matrices.empty() || --matrices.buckets_missing > 0) return;
  if (pass == Pass::matrices) {
    matrices = {};
    return;
  }
  const auto number = std::ranges::find(bundles_.matrix_units, bucket.unit) - bundles_.matrix_units.begin();
  exchanges_.run(static_cast<std::uint64_t>(number), [this, &unit, &matrices, u = bucket.unit] {
    auto* const update = reinterpret_cast<float*>(matrices.update.data());
    shared_->matrices.orthogonalize(u, update, [this, &unit, &matrices] {
      matrices.buckets_missing = unit.cut.buckets();
      matrices.orthogonal = true;
      shared_->active->start_bundles();
    });
  });
}

void UpdateSweep::start_bundles() {
  while (shared_->active == this && next_ < bundles_.bundles.size() && may_start(bundles_.bundles[next_])) {
    const std::size_t b = next_++;
    BundleSweep::Bundle& bundle = bundles_.bundles[b];
    bundle.buckets_missing = bundle.buckets.size();
    if (refreshes(bundle)) shared_->refresh.take_place(bundle);
    if (gathers(bundle)) {
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

void UpdateSweep::update(const BucketPass& pass, const runtime::Handler& done) {
  const BundleSweep::Bucket& bucket = bundles_.buckets[pass.bucket];
  if (!updates(bucket.bucket)) return done();
  const BundleSweep::Bundle& bundle = bundles_.bundles[bucket.bundle];
  const std::byte* const on_host = shared_->gradients.on_host(bucket.bucket);
  shared_->step.step({.bucket = bucket.bucket,
                      .slot = pass.slot,
                      .copy = copy(),
                      .gradients = on_host != nullptr ? on_host : bundle.gradients.data(bucket.gradient_offset),
                      .gradients_on_host = on_host != nullptr,
                      .parameters = bundle.parameters.data(bucket.parameter_offset),
                      .update = reinterpret_cast<float*>(matrix_units_[bucket.bucket.unit].update.data()),
                      .pass = bundle.pass,
                      .only_rounds = was_ahead(pass)},
                     *adamw_, done);
  if (copy() == Copy::counts && in_stream_order_ && bundle.pass != Pass::momentum)
    shared_->refresh.refreshed(bucket.bucket);
}

void UpdateSweep::updated(std::size_t b) {
  BundleSweep::Bundle& bundle = bundles_.bundles[b];
  if (--bundle.buckets_missing > 0) return;
  bundle.gradients.release();
  if (options_.refreshed && bundle.pass != Pass::momentum)
    shared_->refresh.stepped(bundles_, b, in_stream_order_, options_.refreshed);
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
