#include "offload/bucket_pipeline.hpp"

#include "runtime/base/error.hpp"

#include <utility>

namespace ranvier::offload {

BucketPipeline::BucketPipeline(runtime::EventLoop& loop, const BucketPipelineOptions& options, BucketStages stages)
    : loop_(loop), options_(options), stages_(std::move(stages)) {
  expect(options.depth > 0, "a pipeline of {} buckets has no slot", options.buckets);
  for (std::size_t slot = options.depth; slot-- > 0;) free_slots_.push_back(slot);
}

void BucketPipeline::fetch(std::size_t bucket) {
  ++begun_;
  stages_.fetch(pass_of(bucket), [this, bucket] {
    if (is_skipped()) return drop(bucket);
    buckets_[bucket].fetched = true;
    compute_if_due(bucket);
  });
}

void BucketPipeline::fetch_ahead() {
  while (!is_skipped() && !free_slots_.empty() && next_ < buckets_.size()) {
    const std::size_t bucket = next_++;
    if (!needs_slot(bucket)) continue;
    buckets_[bucket].slot = free_slots_.back();
    free_slots_.pop_back();
    fetch(bucket);
  }
}

void BucketPipeline::compute_if_due(std::size_t bucket) {
  if (!buckets_[bucket].fetched || !buckets_[bucket].ready) return;
  if (options_.commit_mode == CommitMode::on_resolve && counts_ != true) return;
  buckets_[bucket].fetched = false;
  stages_.compute(pass_of(bucket), [this, bucket] {
    if (is_skipped()) return drop(bucket);
    const auto stage_done = runtime::last_of(2, [this, bucket] { drop(bucket); });
    stages_.store(pass_of(bucket), stage_done);
    stages_.refresh(pass_of(bucket), stage_done);
  });
}

void BucketPipeline::drop(std::size_t bucket) {
  if (needs_slot(bucket)) free_slots_.push_back(buckets_[bucket].slot);
  ++gone_;
  fetch_ahead();
  finish_if_done();
}

void BucketPipeline::finish_if_done() {
  if (!done_ || !counts_ || gone_ != (*counts_ ? buckets_.size() : begun_)) return;
  loop_.post([this, counted = *counts_, handler = std::exchange(done_, nullptr)] {
    buckets_.clear();
    handler(counted);
  });
}

void BucketPipeline::begin(std::function<void(bool counted)> done) {
  expect(!done_ && buckets_.empty(), "a step of the bucket pipeline starts before the previous one has ended");
  done_ = std::move(done);
  buckets_.assign(options_.buckets, {});
  counts_ = options_.commit_mode == CommitMode::always ? std::optional(true) : std::nullopt;
  next_ = begun_ = gone_ = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    if (!needs_slot(bucket)) fetch(bucket);
  fetch_ahead();
  finish_if_done();
}

void BucketPipeline::ready(std::size_t bucket) {
  expect(bucket < buckets_.size() && !buckets_[bucket].ready,
         "bucket {} of {} is ready outside a step or twice in one", bucket, options_.buckets);
  buckets_[bucket].ready = true;
  if (!is_skipped()) compute_if_due(bucket);
}

void BucketPipeline::resolve(bool counts) {
  expect(done_ && !counts_, "the bucket pipeline does not wait for a decision");
  counts_ = counts;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (counts) {
      compute_if_due(bucket);
    } else if (buckets_[bucket].fetched) {
      drop(bucket);
    }
  }
  finish_if_done();
}

}  // namespace ranvier::offload
