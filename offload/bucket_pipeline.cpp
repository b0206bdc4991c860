#include "offload/bucket_pipeline.hpp"

#include "runtime/base/error.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace ranvier::offload {

struct BucketPipeline::State {
  enum class Phase { outside, fetching, fetched, computing, leaving, gone };

  struct Bucket {
    Phase phase = Phase::outside;
    bool ready = false;
    std::size_t slot = 0;
    int leaving = 0;  ///< running stages among store and refresh
  };

  State(runtime::EventLoop& event_loop, const BucketPipelineOptions& pipeline_options, BucketStages bucket_stages)
      : loop(event_loop), options(pipeline_options), stages(std::move(bucket_stages)) {
    expect(options.depth > 0, "a pipeline of {} buckets has no slot", options.buckets);
    for (std::size_t slot = options.depth; slot-- > 0;) free_slots.push_back(slot);
  }

  [[nodiscard]] BucketPass pass_of(std::size_t bucket) const { return {bucket, buckets[bucket].slot}; }
  [[nodiscard]] bool is_skipped() const { return counts == false; }

  void fetch_ahead();
  void compute_if_due(std::size_t bucket);
  void leave(std::size_t bucket);
  void drop(std::size_t bucket);
  void finish_if_done();

  runtime::EventLoop& loop;
  const BucketPipelineOptions options;
  const BucketStages stages;
  std::vector<std::size_t> free_slots;

  // State of the running step.
  std::function<void(bool)> done;  // empty between steps
  std::vector<Bucket> buckets;
  std::optional<bool> counts;
  std::size_t next = 0;  // next bucket to fetch
  std::size_t gone = 0;
};

void BucketPipeline::State::fetch_ahead() {
  while (!is_skipped() && !free_slots.empty() && next < buckets.size()) {
    const std::size_t bucket = next++;
    buckets[bucket].phase = Phase::fetching;
    buckets[bucket].slot = free_slots.back();
    free_slots.pop_back();
    stages.fetch(pass_of(bucket), [this, bucket] {
      buckets[bucket].phase = Phase::fetched;
      if (is_skipped()) return drop(bucket);
      compute_if_due(bucket);
    });
  }
}

void BucketPipeline::State::compute_if_due(std::size_t bucket) {
  if (buckets[bucket].phase != Phase::fetched || !buckets[bucket].ready) return;
  if (options.commit_mode == CommitMode::on_resolve && counts != true) return;
  buckets[bucket].phase = Phase::computing;
  stages.compute(pass_of(bucket), [this, bucket] {
    if (is_skipped()) return drop(bucket);
    buckets[bucket].phase = Phase::leaving;
    buckets[bucket].leaving = 2;
    stages.store(pass_of(bucket), [this, bucket] { leave(bucket); });
    stages.refresh(pass_of(bucket), [this, bucket] { leave(bucket); });
  });
}

void BucketPipeline::State::leave(std::size_t bucket) {
  if (--buckets[bucket].leaving == 0) drop(bucket);
}

void BucketPipeline::State::drop(std::size_t bucket) {
  buckets[bucket].phase = Phase::gone;
  free_slots.push_back(buckets[bucket].slot);
  ++gone;
  fetch_ahead();
  finish_if_done();
}

void BucketPipeline::State::finish_if_done() {
  if (!done || !counts || gone != (*counts ? buckets.size() : next)) return;
  loop.post([this, counted = *counts, handler = std::exchange(done, nullptr)] {
    buckets.clear();
    handler(counted);
  });
}

BucketPipeline::BucketPipeline(runtime::EventLoop& loop, const BucketPipelineOptions& options, BucketStages stages)
    : state_(std::make_unique<State>(loop, options, std::move(stages))) {}
BucketPipeline::~BucketPipeline() = default;

void BucketPipeline::begin(std::function<void(bool counted)> done) {
  State& state = *state_;
  expect(!state.done && state.buckets.empty(),
         "a step of the bucket pipeline starts before the previous one has ended");
  state.done = std::move(done);
  state.buckets.assign(state.options.buckets, {});
  state.counts = state.options.commit_mode == CommitMode::always ? std::optional(true) : std::nullopt;
  state.next = state.gone = 0;
  state.fetch_ahead();
  state.finish_if_done();
}

void BucketPipeline::ready(std::size_t bucket) {
  State& state = *state_;
  expect(bucket < state.buckets.size() && !state.buckets[bucket].ready,
         "bucket {} of {} is ready outside a step or twice in one", bucket, state.options.buckets);
  state.buckets[bucket].ready = true;
  state.compute_if_due(bucket);
}

void BucketPipeline::resolve(bool counts) {
  State& state = *state_;
  expect(state.done && !state.counts, "the bucket pipeline does not wait for a decision");
  state.counts = counts;
  for (std::size_t bucket = 0; bucket < state.buckets.size(); ++bucket) {
    if (counts) {
      state.compute_if_due(bucket);
    } else if (state.buckets[bucket].phase == State::Phase::fetched) {
      state.drop(bucket);
    }
  }
  state.finish_if_done();
}

}  // namespace ranvier::offload
