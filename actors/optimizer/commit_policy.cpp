#include "actors/optimizer/commit_policy.hpp"

#include "runtime/base/error.hpp"

#include <numeric>
#include <utility>

namespace ranvier::actors {

using offload::BucketPass;
using offload::CommitMode;
using Copy = StateRecords::Copy;

namespace {

class CommitAtOnce final : public CommitPolicy {
 public:
  explicit CommitAtOnce(Optimizer& optimizer) : CommitPolicy(optimizer) {
    make_steps(as_reduced(), CommitMode::always);
  }

  void begin_states() override { begin_steps(); }
  void reduced(const ChunkSchedule::Chunk& chunk) override { work_on(steps(), chunk.end); }
  void counts(const runtime::AdamWOptions&) override {}
  void skips() override { fail(ErrorCode::internal, "a step is skipped where every step counts"); }
};

class CommitWait final : public CommitPolicy {
 public:
  explicit CommitWait(Optimizer& optimizer) : CommitPolicy(optimizer) {
    make_steps(share().chunks.from_the_front(), CommitMode::on_resolve);
  }

  void begin_states() override {
    begin_steps();
    if (storing()->counts) steps().pipeline->resolve(*storing()->counts);
  }
  void reduced(const ChunkSchedule::Chunk&) override {}
  void counts(const runtime::AdamWOptions& adamw) override {
    newest()->adamw = adamw;
    work_on(steps(), steps().bundles.size());
    if (newest_has_pipeline()) steps().pipeline->resolve(true);
  }
  void skips() override {
    for (std::size_t b = 0; b < steps().buckets.size(); ++b) ready(b);
    if (newest_has_pipeline()) steps().pipeline->resolve(false);
    keep_parameters();
  }
};

/// Updates spare copies before the decision; the bits of results do not depend on that. After the decision:
///
///   committed as expected   spare copies become valid. Buckets updated ahead: only their master weights are fetched
///                           and rounded for layers. Other buckets are updated now.
///   committed and clipped   spare copies are discarded, and all buckets are updated now
///   skipped                 spare copies are discarded
///
/// The decision ends the updates ahead. If gradients pass through buffers, all bundles still do, so that all ranks
/// start the same gathers.
class CommitFlip final : public CommitPolicy {
 public:
  explicit CommitFlip(Optimizer& optimizer) : CommitPolicy(optimizer), ahead_(share(), as_reduced()) {
    for (const UnitState& unit : share().states->all()) is_ahead_.emplace_back(unit.cut.buckets());
    steps() = BundleSweep(share(), share().chunks.from_the_front());
    steps().pipeline =
        make_pipeline(steps(), CommitMode::always, Copy::counts,
                      {.fetch = [this](const BucketPass& pass, auto done) { fetch(pass, done); },
                       .compute = [this](const BucketPass& pass, auto done) { step_or_round(pass, done); },
                       .store = [this](const BucketPass& pass, auto done) { store(pass, done); },
                       .refresh =
                           [this](const BucketPass& pass, const auto& done) {
                             bucket_stepped(pass);
                             done();  // the update wrote the layers' parameters
                           }});
    ahead_.pipeline = make_pipeline(
        ahead_, CommitMode::by_flip, Copy::spare,
        {.fetch = [this](const BucketPass& pass,
                         auto done) { states().fetch(bucket_ahead(pass), pass.slot, Copy::spare, done); },
         .compute = [this](const BucketPass& pass, auto done) { step_ahead(pass, done); },
         .store = [this](const BucketPass& pass, auto done) { store_ahead(pass, done); },
         .refresh =
             [this](const BucketPass& pass, const auto& done) {
               stepped_ahead(ahead_.buckets[pass.bucket].bundle);
               done();  // layers' parameters are unchanged
             }});
    work_on(ahead_, 0);
  }

  void begin_states() override {
    for (auto& buckets : is_ahead_) buckets.assign(buckets.size(), false);
    const auto step = storing();
    const auto came = std::exchange(step->ready, {});
    if (step->counts && !gradients().needed()) return ahead_over();
    ahead_.pipeline->begin([this](bool) { ahead_over(); });
    for (const std::size_t bucket : came) ahead_.pipeline->ready(bucket);
    if (step->counts) end_ahead();
  }
  void reduced(const ChunkSchedule::Chunk& chunk) override { work_on(ahead_, chunk.end); }
  void counts(const runtime::AdamWOptions& adamw) override {
    // Only the gradient scale can differ from the expected options. The decision is the same on all ranks.
    newest()->as_ahead = adamw.gradient_scale == newest()->adamw.gradient_scale;
    ++(newest()->as_ahead ? answers().flipped : answers().again);
    newest()->adamw = adamw;
    if (newest_has_pipeline()) end_ahead();
  }
  void skips() override {
    if (newest_has_pipeline()) end_ahead();
  }
  void refreshed() override { work_on(ahead_, 0); }

 private:
  [[nodiscard]] const ChunkSchedule::Bucket& bucket_ahead(const BucketPass& pass) const {
    return ahead_.buckets[pass.bucket].bucket;
  }
  [[nodiscard]] bool was_ahead(const BucketPass& pass) {
    const auto& [unit, index] = steps().buckets[pass.bucket].bucket;
    return is_ahead_[unit][index];
  }

  void step_ahead(const BucketPass& pass, runtime::Handler done) {
    BucketStep::Operands operands = this->operands(ahead_, pass);
    operands.copy = Copy::spare;
    step().step(operands, storing()->adamw, std::move(done));
  }
  void store_ahead(const BucketPass& pass, const runtime::Handler& done) {
    const ChunkSchedule::Bucket bucket = bucket_ahead(pass);
    states().store(bucket, pass.slot, Copy::spare, [this, bucket, done] {
      is_ahead_[bucket.unit][bucket.index] = true;
      done();
    });
  }
  void stepped_ahead(std::size_t number) {
    BundleSweep::Bundle& bundle = ahead_.bundles[number];
    if (--bundle.buckets_missing > 0) return;
    bundle.gradients.release();
    begin_bundles();
  }

  /// Ends the updates ahead after the decision. All buckets are ready, or will be if gradients pass through buffers.
  void end_ahead() { ahead_.pipeline->resolve(gradients().needed()); }

  /// Called when no update ahead is running.
  void ahead_over() {
    const auto step = storing();
    ahead_.rewind();
    if (!*step->counts) {
      // Only now, because the next batch overwrites gradients.
      keep_parameters();
      return stored();
    }
    for (std::size_t u = 0; u < is_ahead_.size(); ++u) {
      for (std::size_t index = 0; index < is_ahead_[u].size(); ++index) {
        if (!step->as_ahead) is_ahead_[u][index] = false;
        if (!is_ahead_[u][index]) continue;
        states().commit({u, index});
        ++answers().buckets_ahead;
      }
    }
    if (step->as_ahead) answers().buckets += static_cast<std::int64_t>(steps().buckets.size());
    work_on(steps(), 0);
    begin_steps();
    work_on(steps(), steps().bundles.size());
  }

  void fetch(const BucketPass& pass, const runtime::Handler& done) {
    const ChunkSchedule::Bucket& bucket = steps().buckets[pass.bucket].bucket;
    if (was_ahead(pass)) return states().fetch_weights(bucket, pass.slot, done);
    states().fetch(bucket, pass.slot, Copy::counts, done);
  }
  void step_or_round(const BucketPass& pass, runtime::Handler done) {
    if (!was_ahead(pass)) return compute(pass, std::move(done));
    step().round(operands(steps(), pass), std::move(done));
    tell_in_stream_order(steps().buckets[pass.bucket].bucket);
  }
  void store(const BucketPass& pass, const runtime::Handler& done) {
    if (was_ahead(pass)) return done();
    states().store(steps().buckets[pass.bucket].bucket, pass.slot, Copy::counts, done);
  }

  BundleSweep ahead_;
  std::vector<std::vector<bool>> is_ahead_;  // by unit and bucket: updated ahead, for the step in the pipeline
};

}  // namespace

std::unique_ptr<CommitPolicy> CommitPolicy::make(Optimizer& optimizer) {
  if (optimizer.plan_.every_step_counts) return std::make_unique<CommitAtOnce>(optimizer);
  if (optimizer.plan_.flips) return std::make_unique<CommitFlip>(optimizer);
  return std::make_unique<CommitWait>(optimizer);
}

std::unique_ptr<offload::BucketPipeline> CommitPolicy::make_pipeline(const BundleSweep& round,
                                                                     CommitMode commit_mode, Copy to,
                                                                     offload::BucketStages stages) {
  using Changes = StateRecords::Stage;
  switch (states().changes_in(to)) {
    case Changes::fetch:
      stages.fetch = guarded(round, to, std::move(stages.fetch));
      break;
    case Changes::compute:
      stages.compute = guarded(round, to, std::move(stages.compute));
      break;
    case Changes::store:
      stages.store = guarded(round, to, std::move(stages.store));
      break;
  }
  return o_->make_pipeline(round, commit_mode, std::move(stages));
}

CommitPolicy::Stage CommitPolicy::guarded(const BundleSweep& round, Copy to, Stage stage) {
  return [this, &round, to, stage = std::move(stage)](const BucketPass& pass, runtime::Handler done) {
    if (o_->guard_ == nullptr) return stage(pass, std::move(done));
    const ChunkSchedule::Bucket& bucket = round.buckets[pass.bucket].bucket;
    o_->guard_->before_change(bucket, states().number_of(bucket, to),
                              [&stage, pass, done = std::move(done)] { stage(pass, done); });
  };
}

std::vector<std::size_t> CommitPolicy::as_reduced() const {
  std::vector<std::size_t> order(share().chunks.bundles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

void CommitPolicy::make_steps(const std::vector<std::size_t>& order, CommitMode commit_mode) {
  steps() = BundleSweep(share(), order);
  const auto bucket = [this](const BucketPass& pass) { return steps().buckets[pass.bucket].bucket; };
  steps().pipeline = make_pipeline(
      steps(), commit_mode, Copy::counts,
      {.fetch = [this, bucket](const BucketPass& pass,
                               auto done) { states().fetch(bucket(pass), pass.slot, Copy::counts, done); },
       .compute = [this](const BucketPass& pass, auto done) { compute(pass, done); },
       .store = [this, bucket](const BucketPass& pass,
                               auto done) { states().store(bucket(pass), pass.slot, Copy::counts, done); },
       .refresh =
           [this](const BucketPass& pass, const auto& done) {
             bucket_stepped(pass);
             done();  // the update wrote the layers' parameters
           }});
}

void CommitPolicy::compute(const BucketPass& pass, runtime::Handler done) {
  step().step(operands(steps(), pass), storing()->adamw, std::move(done));
  tell_in_stream_order(steps().buckets[pass.bucket].bucket);
}

void CommitPolicy::tell_in_stream_order(const ChunkSchedule::Bucket& bucket) {
  if (o_->in_stream_order_) o_->refresh_.refreshed(bucket);
}

void CommitPolicy::work_on(BundleSweep& round, std::size_t bundles) {
  o_->round_ = &round;
  round.may_begin = bundles;
  o_->begin_bundles();
}

void CommitPolicy::begin_steps() {
  const auto step = storing();
  steps().pipeline->begin([this](bool) { o_->stored(); });
  for (const std::size_t bucket : std::exchange(step->ready, {})) steps().pipeline->ready(bucket);
}

void CommitPolicy::keep_parameters() {
  o_->refresh_.keep_all();
  if (o_->refreshing_.empty()) return;
  const auto step = o_->refreshing_.front();
  o_->refreshing_.pop_front();
  o_->part_over(*step);
}

}  // namespace ranvier::actors
