#include "actors/optimizer/optimizer.hpp"
#include "runtime/base/error.hpp"

#include <numeric>
#include <utility>

namespace ranvier::actors {

using offload::BucketPass;
using offload::CommitMode;
using Copy = StateRecords::Copy;

namespace {

/// Bundles in the order in which chunks are reduced.
std::vector<std::size_t> as_reduced(const ModelShare& share) {
  std::vector<std::size_t> order(share.chunks.bundles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

}  // namespace

class Optimizer::CommitAtOnce final : public CommitPolicy {
 public:
  explicit CommitAtOnce(Optimizer& optimizer) : o_(&optimizer) {
    o_->make_steps(as_reduced(*o_->share_), CommitMode::always, o_->step_stages());
  }

  void begin_states() override { o_->begin_steps(); }
  void reduced(const ChunkSchedule::Chunk& chunk) override { o_->work_on(o_->steps_, chunk.end); }
  void counts(const runtime::AdamWOptions&) override {}
  void skips() override { fail(ErrorCode::internal, "a step is skipped where every step counts"); }

 private:
  Optimizer* o_;
};

class Optimizer::CommitWait final : public CommitPolicy {
 public:
  explicit CommitWait(Optimizer& optimizer) : o_(&optimizer) {
    o_->make_steps(o_->share_->chunks.from_the_front(), CommitMode::on_resolve, o_->step_stages());
  }

  void begin_states() override {
    o_->begin_steps();
    if (o_->storing_.front()->counts) o_->steps_.pipeline->resolve(*o_->storing_.front()->counts);
  }
  void reduced(const ChunkSchedule::Chunk&) override {}
  void counts(const runtime::AdamWOptions& adamw) override {
    o_->newest_->adamw = adamw;
    o_->work_on(o_->steps_, o_->steps_.bundles.size());
    if (o_->newest_has_pipeline()) o_->steps_.pipeline->resolve(true);
  }
  void skips() override {
    for (std::size_t b = 0; b < o_->steps_.buckets.size(); ++b) o_->ready(b);
    if (o_->newest_has_pipeline()) o_->steps_.pipeline->resolve(false);
    o_->keep_parameters();
  }

 private:
  Optimizer* o_;
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
class Optimizer::CommitFlip final : public CommitPolicy {
 public:
  explicit CommitFlip(Optimizer& optimizer) : o_(&optimizer), ahead_(*o_->share_, as_reduced(*o_->share_)) {
    for (const UnitState& unit : o_->share_->states->all()) is_ahead_.emplace_back(unit.cut.buckets());
    const offload::BucketStages usual = o_->step_stages();
    o_->make_steps(
        o_->share_->chunks.from_the_front(), CommitMode::always,
        {.fetch =
             [this, fetch = usual.fetch](const BucketPass& pass, auto done) {
               if (!was_ahead(pass)) return fetch(pass, done);
               o_->states_.fetch_weights(bucket_of(pass), pass.slot, done);
             },
         .compute =
             [this, step = usual.compute](const BucketPass& pass, auto done) {
               if (!was_ahead(pass)) return step(pass, done);
               o_->step_.round(o_->operands(o_->steps_, pass), done);
               o_->tell_in_stream_order(bucket_of(pass));
             },
         .store = [this, store = usual.store](const BucketPass& pass,
                                              const auto& done) { was_ahead(pass) ? done() : store(pass, done); }});
    ahead_.pipeline = o_->make_pipeline(
        ahead_, CommitMode::by_flip, Copy::spare,
        {.fetch = [this](const BucketPass& pass,
                         auto done) { o_->states_.fetch(bucket_ahead(pass), pass.slot, Copy::spare, done); },
         .compute = [this](const BucketPass& pass, auto done) { step_ahead(pass, done); },
         .store = [this](const BucketPass& pass, auto done) { store_ahead(pass, done); },
         .refresh =
             [this](const BucketPass& pass, const auto& done) {
               stepped_ahead(ahead_.buckets[pass.bucket].bundle);
               done();  // layers' parameters are unchanged
             }});
    o_->work_on(ahead_, 0);
  }

  void begin_states() override {
    for (auto& buckets : is_ahead_) buckets.assign(buckets.size(), false);
    const auto step = o_->storing_.front();
    const auto came = std::exchange(step->ready, {});
    if (step->counts && !o_->gradients_.needed()) return ahead_over();
    ahead_.pipeline->begin([this](bool) { ahead_over(); });
    for (const std::size_t bucket : came) ahead_.pipeline->ready(bucket);
    if (step->counts) end_ahead();
  }
  void reduced(const ChunkSchedule::Chunk& chunk) override { o_->work_on(ahead_, chunk.end); }
  void counts(const runtime::AdamWOptions& adamw) override {
    // Only the gradient scale can differ from the expected options. The decision is the same on all ranks.
    o_->newest_->as_ahead = adamw.gradient_scale == o_->newest_->adamw.gradient_scale;
    ++(o_->newest_->as_ahead ? o_->answers_.flipped : o_->answers_.again);
    o_->newest_->adamw = adamw;
    if (o_->newest_has_pipeline()) end_ahead();
  }
  void skips() override {
    if (o_->newest_has_pipeline()) end_ahead();
  }
  void refreshed() override { o_->work_on(ahead_, 0); }

 private:
  [[nodiscard]] const ChunkSchedule::Bucket& bucket_ahead(const BucketPass& pass) const {
    return ahead_.buckets[pass.bucket].bucket;
  }
  [[nodiscard]] const ChunkSchedule::Bucket& bucket_of(const BucketPass& pass) const {
    return o_->steps_.buckets[pass.bucket].bucket;
  }
  [[nodiscard]] bool was_ahead(const BucketPass& pass) const {
    return is_ahead_[bucket_of(pass).unit][bucket_of(pass).index];
  }

  void step_ahead(const BucketPass& pass, runtime::Handler done) {
    BucketStep::Operands operands = o_->operands(ahead_, pass);
    operands.copy = Copy::spare;
    o_->step_.step(operands, o_->storing_.front()->adamw, std::move(done));
  }
  void store_ahead(const BucketPass& pass, const runtime::Handler& done) {
    const ChunkSchedule::Bucket bucket = bucket_ahead(pass);
    o_->states_.store(bucket, pass.slot, Copy::spare, [this, bucket, done] {
      is_ahead_[bucket.unit][bucket.index] = true;
      done();
    });
  }
  void stepped_ahead(std::size_t number) {
    BundleSweep::Bundle& bundle = ahead_.bundles[number];
    if (--bundle.buckets_missing > 0) return;
    bundle.gradients.release();
    o_->begin_bundles();
  }

  /// Ends the updates ahead after the decision. All buckets are ready, or will be if gradients pass through buffers.
  void end_ahead() { ahead_.pipeline->resolve(o_->gradients_.needed()); }

  /// Called when no update ahead is running.
  void ahead_over() {
    const auto step = o_->storing_.front();
    ahead_.rewind();
    if (!*step->counts) {
      // Only now, because the next batch overwrites gradients.
      o_->keep_parameters();
      return o_->stored();
    }
    for (std::size_t u = 0; u < is_ahead_.size(); ++u) {
      for (std::size_t index = 0; index < is_ahead_[u].size(); ++index) {
        if (!step->as_ahead) is_ahead_[u][index] = false;
        if (!is_ahead_[u][index]) continue;
        o_->states_.commit({u, index});
        ++o_->answers_.buckets_ahead;
      }
    }
    if (step->as_ahead) o_->answers_.buckets += static_cast<std::int64_t>(o_->steps_.buckets.size());
    o_->work_on(o_->steps_, 0);
    o_->begin_steps();
    o_->work_on(o_->steps_, o_->steps_.bundles.size());
  }

  Optimizer* o_;
  BundleSweep ahead_;
  std::vector<std::vector<bool>> is_ahead_;  // by unit and bucket: updated ahead, for the step in the pipeline
};

std::unique_ptr<Optimizer::CommitPolicy> Optimizer::CommitPolicy::make(Optimizer& optimizer) {
  if (optimizer.plan_.every_step_counts) return std::make_unique<CommitAtOnce>(optimizer);
  if (optimizer.plan_.flips) return std::make_unique<CommitFlip>(optimizer);
  return std::make_unique<CommitWait>(optimizer);
}

std::unique_ptr<offload::BucketPipeline> Optimizer::make_pipeline(const BundleSweep& round, CommitMode commit_mode,
                                                                  Copy to, offload::BucketStages stages) {
  offload::BucketStages::Stage& changing = stages.*states_.changes_in(to);
  changing = [this, &round, to, stage = std::move(changing)](const BucketPass& pass, runtime::Handler done) {
    if (guard_ == nullptr) return stage(pass, std::move(done));
    const ChunkSchedule::Bucket& bucket = round.buckets[pass.bucket].bucket;
    guard_->before_change(bucket, states_.number_of(bucket, to),
                          [&stage, pass, done = std::move(done)] { stage(pass, done); });
  };
  return std::make_unique<offload::BucketPipeline>(
      *loop_,
      offload::BucketPipelineOptions{
          .buckets = round.buckets.size(), .depth = plan_.depth, .commit_mode = commit_mode},
      std::move(stages));
}

offload::BucketStages Optimizer::step_stages() {
  const auto bucket = [this](const BucketPass& pass) { return steps_.buckets[pass.bucket].bucket; };
  return {.fetch = [this, bucket](const BucketPass& pass,
                                  auto done) { states_.fetch(bucket(pass), pass.slot, Copy::counts, done); },
          .compute =
              [this, bucket](const BucketPass& pass, auto done) {
                step_.step(operands(steps_, pass), storing_.front()->adamw, std::move(done));
                tell_in_stream_order(bucket(pass));
              },
          .store = [this, bucket](const BucketPass& pass,
                                  auto done) { states_.store(bucket(pass), pass.slot, Copy::counts, done); }};
}

void Optimizer::make_steps(const std::vector<std::size_t>& order, CommitMode commit_mode,
                           offload::BucketStages stages) {
  steps_ = BundleSweep(*share_, order);
  stages.refresh = [this](const BucketPass& pass, const auto& done) {
    bucket_stepped(steps_.buckets[pass.bucket].bundle);
    done();  // the update wrote the layers' parameters
  };
  steps_.pipeline = make_pipeline(steps_, commit_mode, Copy::counts, std::move(stages));
}

void Optimizer::tell_in_stream_order(const ChunkSchedule::Bucket& bucket) {
  if (in_stream_order_) refresh_.refreshed(bucket);
}

void Optimizer::work_on(BundleSweep& round, std::size_t bundles) {
  round_ = &round;
  round.may_begin = bundles;
  begin_bundles();
}

void Optimizer::begin_steps() {
  const auto step = storing_.front();
  steps_.pipeline->begin([this](bool) { stored(); });
  for (const std::size_t bucket : std::exchange(step->ready, {})) steps_.pipeline->ready(bucket);
}

void Optimizer::keep_parameters() {
  refresh_.keep_all();
  if (refreshing_.empty()) return;
  const auto step = refreshing_.front();
  refreshing_.pop_front();
  part_over(*step);
}

}  // namespace ranvier::actors
