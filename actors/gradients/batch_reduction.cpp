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
  if (planner.tiers.gradients != TierKind::device) plan.chunks = ChunkSums::plan(planner, every_step_counts);
  plan.squares = GradientSquaredNorm::plan(planner);
  return plan;
}

BatchReduction::BatchReduction(const RankContext& context, const ModelShare& share, const Plan& plan,
                               TiedUnits& tied, GradientRecords* records)
    : context_(&context),
      states_(share.states.get()),
      tied_(&tied),
      reduction_(context, *share.column, plan.reduction),
      squares_(context, share, plan.squares),
      sums_(context, share, plan.chunks, records),
      chunks_(share.chunks.chunks.size()),
      ready_(states_->all().size()),
      submits_(chunks_),
      copies_(chunks_),
      announces_(chunks_) {}

void BatchReduction::start(runtime::Handler done) {
  expect(missing_ == 0, "gradients of one batch are reduced at a time");
  done_ = std::move(done);
  missing_ = chunks_;
  next_ = 0;
  squares_.start();
  ready_.assign(ready_.size(), false);
  if (missing_ == 0) context_->loop.post(std::exchange(done_, nullptr));
}

void BatchReduction::summed(std::size_t unit) {
  ready_[unit] = true;
  bring_ready();
}

void BatchReduction::bring_ready() {
  for (; next_ < chunks_; ++next_) {
    const auto& buckets = sums_.buckets(next_);
    if (!std::ranges::all_of(buckets, [this](const auto& bucket) { return ready_[bucket.unit]; })) return;
    sums_.bring(next_, [this, chunk = next_] { submits_.run(chunk, [this, chunk] { submit(chunk); }); });
  }
}

void BatchReduction::submit(std::size_t chunk) {
  std::vector<HopPipeline::Item> items;
  const auto& buckets = sums_.buckets(chunk);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const UnitState& unit = states_->all()[buckets[i].unit];
    const UnitView& sum = unit.gradients.front();
    std::byte* const record = sums_.record(chunk, i);
    items.push_back({.data = record != nullptr ? record : sum.data,
                     .begin = sum.range.begin,
                     .elements = unit.elements,
                     .slice = unit.cut.slice(buckets[i].index),
                     .compact = record != nullptr});
  }
  const auto begin = context_->trace.now();
  reduction_.submit(std::move(items), "reduction of the gradients of " + states_->names(buckets),
                    [this, chunk, begin] {
                      context_->trace.add(SpanKind::reduce, Trace::Lane::communicate, begin, context_->trace.now(),
                                          static_cast<int>(chunk));
                      copies_.run(chunk, [this, chunk] { make_equal(chunk); });
                    });
}

void BatchReduction::make_equal(std::size_t chunk) {
  const auto& buckets = sums_.buckets(chunk);
  const auto copies = [this](const auto& bucket) { return tied_->copies(bucket.unit); };
  const std::ptrdiff_t copied = std::ranges::count_if(buckets, copies);
  // One extra until all copies have started.
  const auto one_equal = runtime::last_of(1 + static_cast<std::size_t>(copied), [this, chunk] {
    announces_.run(chunk, [this, chunk] { reduced(chunk); });
  });
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (copies(buckets[i])) tied_->copy(buckets[i].unit, runs_of_reduced(chunk, i), one_equal);
  }
  one_equal();
}

std::vector<runtime::Bytes> BatchReduction::runs_of_reduced(std::size_t chunk, std::size_t place) const {
  const ChunkSchedule::Bucket& bucket = sums_.buckets(chunk)[place];
  const UnitState& unit = states_->all()[bucket.unit];
  const std::size_t width = runtime::size_of(states_->precision().gradient);
  const auto [begin, count, runs] = unit.cut.spread(unit.reduced, bucket.index);
  std::byte* const first = sums_.reduced(chunk, place);
  if (sums_.record(chunk, place) != nullptr || runs.contiguous()) return {{first, count * width}};
  std::vector<runtime::Bytes> all;
  for (std::size_t x = 0; x < count; x += runs.run) all.emplace_back(first + runs.at(x) * width, runs.run * width);
  return all;
}

void BatchReduction::reduced(std::size_t chunk) {
  const auto& buckets = sums_.buckets(chunk);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    squares_.take(buckets[i], sums_.reduced(chunk, i), sums_.record(chunk, i) != nullptr);
  }
  sums_.leave(
      chunk,
      [this, chunk] {
        if (chunk_reduced_) chunk_reduced_(chunk);
      },
      [this] {
        if (--missing_ == 0) std::exchange(done_, nullptr)();
      });
}

}  // namespace ranvier::actors
