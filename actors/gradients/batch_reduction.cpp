#include "actors/gradients/batch_reduction.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using runtime::SpanKind;
using runtime::Trace;

BatchReduction::Plan BatchReduction::plan(PlanContext& planner, bool every_step_counts) {
  const UnitStates& states = *planner.share.states;
  const ChunkSchedule& chunks = planner.share.chunks;
  std::vector<std::vector<HopPipeline::ItemShape>> shapes;
  for (const ChunkSchedule::Chunk& chunk : chunks.chunks) {
    auto& items = shapes.emplace_back();
    for (const auto& [u, index] : chunks.buckets(chunk)) {
      items.push_back({states.all()[u].elements, states.all()[u].cut.slice(index).count});
    }
  }
  Plan plan;
  plan.reduction = HopPipeline::plan(planner,
                                     {.hops = planner.share.flow.reduce_batch,
                                      .dtype = states.precision().gradient,
                                      .family = 3,
                                      .name = "accumulated gradients"},
                                     shapes);
  if (planner.tiers.gradients != TierKind::device) plan.chunks = RecordChunkSums::plan(planner, every_step_counts);
  plan.squares = GradientSquaredNorm::plan(planner);
  return plan;
}

BatchReduction::BatchReduction(const RankContext& context, const ModelShare& share, const Plan& plan,
                               TiedUnits& tied, GradientRecords* records)
    : loop_(&context.loop),
      trace_(&context.trace),
      states_(share.states.get()),
      tied_(&tied),
      reduction_(context, *share.column, plan.reduction),
      squares_(context, share, plan.squares),
      ready_(states_->all().size()) {
  if (records != nullptr) {
    sums_ = std::make_unique<RecordChunkSums>(context, share, plan.chunks, *records, [this] { bring_ready(); });
  } else {
    sums_ = std::make_unique<DeviceChunkSums>(context);
  }
  for (const ChunkSchedule::Chunk& chunk : share.chunks.chunks) {
    chunks_.push_back({.buckets = share.chunks.buckets(chunk)});
  }
  next_ = chunks_.size();
}

void BatchReduction::start(runtime::Handler done) {
  expect(missing_ == 0, "gradients of one batch are reduced at a time");
  done_ = std::move(done);
  missing_ = chunks_.size();
  next_ = next_there_ = next_left_ = next_equal_ = 0;
  for (Chunk& chunk : chunks_) chunk.there = chunk.left_column = chunk.equal = false;
  squares_.start();
  ready_.assign(ready_.size(), false);
  if (missing_ == 0) loop_->post(std::exchange(done_, nullptr));
}

void BatchReduction::summed(std::size_t unit) {
  ready_[unit] = true;
  bring_ready();
}

void BatchReduction::bring_ready() {
  while (next_ < chunks_.size() && sums_->has_room()) {
    const auto& buckets = chunks_[next_].buckets;
    if (!std::all_of(buckets.begin(), buckets.end(), [this](const auto& bucket) { return ready_[bucket.unit]; }))
      return;
    sums_->bring(next_, [this, chunk = next_] {
      chunks_[chunk].there = true;
      while (next_there_ < chunks_.size() && chunks_[next_there_].there) submit(next_there_++);
    });
    ++next_;
  }
}

void BatchReduction::submit(std::size_t chunk) {
  std::vector<HopPipeline::Item> items;
  const auto& buckets = chunks_[chunk].buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const UnitState& unit = states_->all()[buckets[i].unit];
    const UnitView& sum = unit.gradients.front();
    std::byte* const record = sums_->record(chunk, i);
    items.push_back({.data = record != nullptr ? record : sum.data,
                     .begin = sum.range.begin,
                     .elements = unit.elements,
                     .slice = unit.cut.slice(buckets[i].index),
                     .compact = record != nullptr});
  }
  const auto begin = trace_->now();
  reduction_.submit(
      std::move(items), "reduction of the gradients of " + states_->names(buckets), [this, chunk, begin] {
        trace_->add(SpanKind::reduce, Trace::Lane::communicate, begin, trace_->now(), static_cast<int>(chunk));
        chunks_[chunk].left_column = true;
        while (next_left_ < chunks_.size() && chunks_[next_left_].left_column) make_equal(next_left_++);
      });
}

void BatchReduction::make_equal(std::size_t chunk) {
  // One extra until all copies have started.
  const auto missing = std::make_shared<std::size_t>(1);
  const auto one_equal = [this, chunk, missing] {
    if (--*missing > 0) return;
    chunks_[chunk].equal = true;
    while (next_equal_ < chunks_.size() && chunks_[next_equal_].equal) reduced(next_equal_++);
  };
  const auto& buckets = chunks_[chunk].buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (!tied_->copies(buckets[i].unit)) continue;
    ++*missing;
    tied_->copy(buckets[i].unit, runs_of_reduced(buckets[i], sums_->record(chunk, i)), one_equal);
  }
  one_equal();
}

std::byte* BatchReduction::first_reduced(const ChunkSchedule::Bucket& bucket, std::byte* record) const {
  const UnitState& unit = states_->all()[bucket.unit];
  const UnitView& sum = unit.gradients.front();
  if (record == nullptr) return sum.at(unit.cut.spread(unit.reduced, bucket.index).begin);
  const std::size_t before =
      unit.cut.elements({sum.range.begin, unit.reduced.begin - sum.range.begin}, bucket.index);
  return record + before * runtime::size_of(sum.dtype);
}

std::vector<runtime::Bytes> BatchReduction::runs_of_reduced(const ChunkSchedule::Bucket& bucket,
                                                            std::byte* record) const {
  const UnitState& unit = states_->all()[bucket.unit];
  const std::size_t width = runtime::size_of(states_->precision().gradient);
  const auto [begin, count, runs] = unit.cut.spread(unit.reduced, bucket.index);
  std::byte* const first = first_reduced(bucket, record);
  if (record != nullptr || runs.contiguous()) return {{first, count * width}};
  std::vector<runtime::Bytes> all;
  for (std::size_t x = 0; x < count; x += runs.run) all.emplace_back(first + runs.at(x) * width, runs.run * width);
  return all;
}

void BatchReduction::reduced(std::size_t chunk) {
  const auto& buckets = chunks_[chunk].buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    std::byte* const record = sums_->record(chunk, i);
    squares_.take(buckets[i], first_reduced(buckets[i], record), record != nullptr);
  }
  sums_->leave(
      chunk,
      [this, chunk] {
        if (chunk_reduced_) chunk_reduced_(chunk);
      },
      [this] {
        if (--missing_ == 0) std::exchange(done_, nullptr)();
      });
}

}  // namespace ranvier::actors
