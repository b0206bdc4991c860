#include "actors/gradients/chunk_sums.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SlotPool;

namespace {

constexpr std::size_t chunks_on_device = 3;  // one is fetched, one reduced, one stored

/// Bytes of a bucket's record of gradients.
std::size_t record_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket) {
  const UnitState& unit = states.all()[bucket.unit];
  const UnitView& part = unit.gradients.front();
  return offload::Tier::whole_blocks(unit.cut.elements(part.range, bucket.index) * runtime::size_of(part.dtype));
}

}  // namespace

ChunkSums::Plan ChunkSums::plan(PlanContext& planner, bool lends) {
  const ChunkSchedule& chunks = planner.share.chunks;
  std::size_t most = 0;
  for (const ChunkSchedule::Chunk& chunk : chunks.chunks) {
    std::size_t bytes = 0;
    for (const auto& bucket : chunks.buckets(chunk)) bytes += record_bytes(*planner.share.states, bucket);
    most = std::max(most, bytes);
  }
  return {.places = SlotPool::plan(planner.memory,
                                   {MemoryKind::gradients, MemorySpace::device, "chunks of gradients being reduced",
                                    most, std::min(chunks_on_device, chunks.chunks.size())}),
          .lends = lends && !GradientRecords::stepped_in_place(planner)};
}

ChunkSums::ChunkSums(const RankContext& context, const ModelShare& share, const Plan& plan,
                     GradientRecords* records)
    : context_(&context),
      states_(share.states.get()),
      records_(records),
      lends_(plan.lends),
      places_(context.arena, plan.places),
      available_(share.chunks.chunks.size()) {
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

void ChunkSums::bring(std::size_t number, runtime::Handler there) {
  if (records_ == nullptr) return there();
  places_.when_free([this, number, there = std::move(there)](const SlotPool::Slot& place) {
    Chunk& chunk = chunks_[number];
    chunk.place = place;
    const auto one_there = runtime::last_of(chunk.buckets.size(), there);
    for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
      const auto& [unit, index] = chunk.buckets[i];
      records_->move(offload::IoKind::read, unit, 0, records_->bucket(unit, index), record(number, i), one_there);
    }
  });
}

std::byte* ChunkSums::record(std::size_t chunk, std::size_t place) const {
  return chunks_[chunk].place.data(chunks_[chunk].offsets[place]);
}

std::byte* ChunkSums::reduced(std::size_t chunk, std::size_t place) const {
  const auto& [u, index] = chunks_[chunk].buckets[place];
  const UnitState& unit = states_->all()[u];
  const UnitView& sum = unit.gradients.front();
  if (records_ == nullptr) return sum.at(unit.cut.spread(unit.reduced, index).begin);
  const std::size_t before = unit.cut.elements({sum.range.begin, unit.reduced.begin - sum.range.begin}, index);
  return record(chunk, place) + before * runtime::size_of(sum.dtype);
}

void ChunkSums::leave(std::size_t number, runtime::Handler available, runtime::Handler over) {
  const runtime::WorkName squares{"gradients", "sums of squares"};
  if (records_ == nullptr) {
    context_->loop.after_work(context_->compute, squares, std::move(over));
    return available();
  }
  context_->loop.after_work(context_->compute, squares,
                            [this, number, available = std::move(available), over = std::move(over)] {
                              if (!lends_) return store(number, available, over);
                              lend(number);
                              available();
                              over();
                            });
}

/// Stores the reduced gradients until the step is committed.
void ChunkSums::store(std::size_t number, const runtime::Handler& available, runtime::Handler over) {
  const Chunk& chunk = chunks_[number];
  const auto stored = runtime::last_of(chunk.buckets.size(), [this, number, available, over = std::move(over)] {
    chunks_[number].place.release();
    available_.run(number, available);
    places_.serve();
    over();
  });
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    const auto& [unit, index] = chunk.buckets[i];
    records_->store_reduced(unit, index, reduced(number, i), stored);
  }
}

/// Keeps the chunk on the device until the optimizer has read it. The next batch may have started by then.
void ChunkSums::lend(std::size_t number) {
  const Chunk& chunk = chunks_[number];
  const auto returned = runtime::last_of(chunk.buckets.size(), [this, place = chunk.place] {
    place.release();
    places_.serve();
  });
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    const auto& [unit, index] = chunk.buckets[i];
    records_->lend_reduced(unit, index, reduced(number, i), returned);
  }
}

}  // namespace ranvier::actors
