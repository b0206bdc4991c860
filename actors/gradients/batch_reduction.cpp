#include "actors/gradients/batch_reduction.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SlotPool;
using runtime::SpanKind;
using runtime::Trace;

namespace {

constexpr std::size_t chunks_on_device = 3;  // one is fetched, one reduced, one stored

/// Bytes of a bucket's record of gradients.
std::size_t record_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket) {
  const UnitState& unit = states.all()[bucket.unit];
  const UnitView& part = unit.gradients.front();
  return offload::Tier::whole_blocks(unit.cut.elements(part.range, bucket.index) * runtime::size_of(part.dtype));
}

}  // namespace

BatchReduction::Plan BatchReduction::plan(PlanContext& planner, bool every_step_counts) {
  const UnitStates& states = *planner.share.states;
  const ChunkSchedule& chunks = planner.share.chunks;
  std::vector<std::vector<HopPipeline::ItemShape>> shapes;
  std::size_t most = 0;
  for (const ChunkSchedule::Chunk& chunk : chunks.chunks) {
    auto& items = shapes.emplace_back();
    std::size_t bytes = 0;
    for (const ChunkSchedule::Bucket& bucket : chunks.buckets(chunk)) {
      const UnitState& unit = states.all()[bucket.unit];
      items.push_back({unit.elements, unit.cut.slice(bucket.index).count});
      bytes += record_bytes(states, bucket);
    }
    most = std::max(most, bytes);
  }
  Plan plan;
  plan.reduction = HopPipeline::plan(planner,
                                     {.hops = planner.share.flow.reduce_batch,
                                      .dtype = states.precision().gradient,
                                      .family = 3,
                                      .name = "accumulated gradients",
                                      .wire = &collectives::WireTypes::reduce},
                                     shapes);
  if (planner.tiers.gradients != TierKind::device) {
    plan.places = SlotPool::plan(
        planner.memory, {MemoryKind::gradients, MemorySpace::device, "chunks of gradients being reduced", most,
                         std::min(chunks_on_device, chunks.chunks.size())});
    plan.lends = every_step_counts && !OffloadedGradients::stepped_in_place(planner);
  }
  plan.squares = GradientSquaredNorm::plan(planner);
  return plan;
}

BatchReduction::BatchReduction(const RankContext& context, const ModelShare& share, const Plan& plan,
                               TiedUnits& tied, OffloadedGradients* records)
    : context_(&context),
      states_(share.states.get()),
      tied_(&tied),
      records_(records),
      lends_(plan.lends),
      reduction_(context, *share.column, plan.reduction),
      squares_(context, share, plan.squares),
      places_(context.arena, plan.places),
      ready_(states_->all().size()),
      submits_(share.chunks.chunks.size()),
      copies_(submits_),
      sums_(submits_),
      announces_(submits_) {
  for (const ChunkSchedule::Chunk& chunk : share.chunks.chunks) {
    Chunk& made = chunks_.emplace_back();
    made.buckets = share.chunks.buckets(chunk);
    std::size_t offset = 0;
    for (const ChunkSchedule::Bucket& bucket : made.buckets) {
      made.offsets.push_back(offset);
      offset += record_bytes(*states_, bucket);
    }
  }
}

void BatchReduction::start(runtime::Handler done) {
  expect(missing_ == 0, "gradients of one batch are reduced at a time");
  done_ = std::move(done);
  missing_ = chunks_.size();
  next_ = 0;
  ready_.assign(ready_.size(), false);
  if (missing_ == 0) context_->loop.post(std::exchange(done_, nullptr));
}

void BatchReduction::summed(std::size_t unit) {
  ready_[unit] = true;
  for (; next_ < chunks_.size(); ++next_) {
    const auto& buckets = chunks_[next_].buckets;
    if (!std::ranges::all_of(buckets, [this](const auto& bucket) { return ready_[bucket.unit]; })) return;
    bring(next_);
  }
}

/// Fetches the chunk's gradients to the device when a buffer is free.
void BatchReduction::bring(std::size_t number) {
  const auto there = [this, number] { submits_.run(number, [this, number] { submit(number); }); };
  if (records_ == nullptr) return there();
  places_.when_free([this, number, there](const SlotPool::Slot& place) {
    Chunk& chunk = chunks_[number];
    chunk.place = place;
    const auto one_there = runtime::last_of(chunk.buckets.size(), there);
    for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
      const auto& [unit, index] = chunk.buckets[i];
      records_->move(offload::IoKind::read, unit, 0, records_->bucket(unit, index), record(chunk, i), one_there);
    }
  });
}

std::byte* BatchReduction::record(const Chunk& chunk, std::size_t place) const {
  return chunk.place.data(chunk.offsets[place]);
}

std::byte* BatchReduction::reduced_part(const Chunk& chunk, std::size_t place) const {
  const auto& [u, index] = chunk.buckets[place];
  const UnitState& unit = states_->all()[u];
  const UnitView& sum = unit.gradients.front();
  if (records_ == nullptr) return sum.at(unit.cut.spread(unit.reduced, index).begin);
  const std::size_t before = unit.cut.elements({sum.range.begin, unit.reduced.begin - sum.range.begin}, index);
  return record(chunk, place) + before * runtime::size_of(sum.dtype);
}

void BatchReduction::submit(std::size_t number) {
  std::vector<HopPipeline::Item> items;
  const Chunk& chunk = chunks_[number];
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    const UnitState& unit = states_->all()[chunk.buckets[i].unit];
    const UnitView& sum = unit.gradients.front();
    std::byte* const in_record = record(chunk, i);
    items.push_back({.data = in_record != nullptr ? in_record : sum.data,
                     .begin = sum.range.begin,
                     .elements = unit.elements,
                     .slice = unit.cut.slice(chunk.buckets[i].index),
                     .compact = in_record != nullptr});
  }
  const auto begin = context_->trace.now();
  reduction_.submit(std::move(items), "reduction of the gradients of " + states_->names(chunk.buckets),
                    [this, number, begin] {
                      context_->trace.add(SpanKind::reduce, Trace::Lane::communicate, begin, context_->trace.now(),
                                          static_cast<int>(number));
                      copies_.run(number, [this, number] { make_equal(number); });
                    });
}

void BatchReduction::make_equal(std::size_t number) {
  const Chunk& chunk = chunks_[number];
  const auto copies = [this](const auto& bucket) { return tied_->copies(bucket.unit); };
  const std::ptrdiff_t copied = std::ranges::count_if(chunk.buckets, copies);
  // One extra until all copies have started.
  const auto one_equal = runtime::last_of(1 + static_cast<std::size_t>(copied), [this, number] {
    sums_.run(number, [this, number] { reduced(number); });
  });
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    if (copies(chunk.buckets[i])) tied_->copy(chunk.buckets[i].unit, runs_of_reduced(chunk, i), one_equal);
  }
  one_equal();
}

/// The reduced part of bucket number `place` of a chunk.
std::vector<runtime::Bytes> BatchReduction::runs_of_reduced(const Chunk& chunk, std::size_t place) const {
  const auto& [u, index] = chunk.buckets[place];
  const UnitState& unit = states_->all()[u];
  const UnitView& sum = unit.gradients.front();
  const auto bytes = [&sum](std::size_t elements) { return runtime::bytes_of(sum.dtype, elements); };
  if (record(chunk, place) != nullptr)
    return {{reduced_part(chunk, place), bytes(unit.cut.elements(unit.reduced, index))}};
  std::vector<runtime::Bytes> all;
  for (const auto& [begin, count] : unit.cut.runs(unit.reduced, index)) {
    std::byte* const first = sum.at(begin);
    const bool adjacent = !all.empty() && all.back().data() + all.back().size() == first;
    if (!adjacent) all.emplace_back(first, 0);
    all.back() = {all.back().data(), all.back().size() + bytes(count)};
  }
  return all;
}

void BatchReduction::reduced(std::size_t number) {
  const Chunk& chunk = chunks_[number];
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    squares_.take(chunk.buckets[i], reduced_part(chunk, i), record(chunk, i) != nullptr);
  }
  context_->loop.after_work(context_->compute, {"gradients", "sums of squares"},
                            [this, number] { records_ == nullptr ? over() : keep(number); });
  if (records_ == nullptr) announce(number);
}

/// Stores the reduced gradients until the step is committed, or keeps the chunk on the device until the optimizer has
/// read it. The next batch may have started by then.
void BatchReduction::keep(std::size_t number) {
  const Chunk& chunk = chunks_[number];
  const auto left = runtime::last_of(chunk.buckets.size(), [this, number, place = chunk.place] {
    place.release();
    if (!lends_) announces_.run(number, [this, number] { announce(number); });
    places_.serve();
    if (!lends_) over();
  });
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    const auto& [unit, index] = chunk.buckets[i];
    lends_ ? records_->lend_reduced(unit, index, reduced_part(chunk, i), left)
           : records_->store_reduced(unit, index, reduced_part(chunk, i), left);
  }
  if (!lends_) return;
  announce(number);
  over();
}

/// The optimizer may read the chunk.
void BatchReduction::announce(std::size_t chunk) {
  if (chunk_reduced_) chunk_reduced_(chunk);
}

/// All work of a chunk has finished.
void BatchReduction::over() {
  if (--missing_ == 0) std::exchange(done_, nullptr)();
}

}  // namespace ranvier::actors
