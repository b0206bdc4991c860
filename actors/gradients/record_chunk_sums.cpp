#include "actors/gradients/record_chunk_sums.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace ranvier::actors {

using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

constexpr std::size_t chunks_on_device = 3;  // one is fetched, one reduced, one stored

/// Bytes of a bucket's record of gradients.
std::size_t record_bytes(const UnitStates& states, const ChunkSchedule::Bucket& bucket) {
  const UnitState& unit = states.all()[bucket.unit];
  const UnitView& part = unit.gradients.front();
  return offload::Tier::whole_blocks(unit.cut.elements(part.range, bucket.index) * runtime::size_of(part.dtype));
}

}  // namespace

RecordChunkSums::Plan RecordChunkSums::plan(PlanContext& planner, bool lends) {
  const ChunkSchedule& chunks = planner.share.chunks;
  std::size_t most = 0;
  for (const ChunkSchedule::Chunk& chunk : chunks.chunks) {
    std::size_t bytes = 0;
    for (const auto& bucket : chunks.buckets(chunk)) bytes += record_bytes(*planner.share.states, bucket);
    most = std::max(most, bytes);
  }
  const std::size_t count = std::min(chunks_on_device, chunks.chunks.size());
  return {.places = planner.memory.add(
              {MemoryKind::gradients, MemorySpace::device, "chunks of gradients being reduced", most, count}),
          .place_count = count,
          .lends = lends && !GradientRecords::stepped_in_place(planner)};
}

RecordChunkSums::RecordChunkSums(const RankContext& context, const ModelShare& share, const Plan& plan,
                                 GradientRecords& records, runtime::Handler freed)
    : loop_(&context.loop),
      stream_(context.compute),
      states_(share.states.get()),
      records_(&records),
      lends_(plan.lends),
      freed_(std::move(freed)) {
  for (const ChunkSchedule::Chunk& chunk : share.chunks.chunks) {
    Chunk& made = chunks_.emplace_back();
    made.buckets = share.chunks.buckets(chunk);
    std::size_t offset = 0;
    for (const ChunkSchedule::Bucket& bucket : made.buckets) {
      made.offsets.push_back(offset);
      offset += record_bytes(*states_, bucket);
    }
  }
  for (std::size_t p = 0; p < plan.place_count; ++p) free_places_.push_back(context.arena.slot(plan.places, p));
}

void RecordChunkSums::bring(std::size_t number, runtime::Handler there) {
  Chunk& chunk = chunks_[number];
  if (number == 0) next_available_ = 0;
  chunk.place = free_places_.back();
  free_places_.pop_back();
  chunk.missing = chunk.buckets.size();
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    const auto& [unit, index] = chunk.buckets[i];
    records_->fetch(unit, 0, records_->bucket(unit, index), record(number, i), [this, number, there] {
      if (--chunks_[number].missing == 0) there();
    });
  }
}

std::byte* RecordChunkSums::record(std::size_t chunk, std::size_t place) const {
  return chunks_[chunk].place + chunks_[chunk].offsets[place];
}

std::byte* RecordChunkSums::reduced(std::size_t chunk, std::size_t place) const {
  const auto& [u, index] = chunks_[chunk].buckets[place];
  const UnitState& unit = states_->all()[u];
  const UnitView& sum = unit.gradients.front();
  const std::size_t before = unit.cut.elements({sum.range.begin, unit.reduced.begin - sum.range.begin}, index);
  return record(chunk, place) + before * runtime::size_of(sum.dtype);
}

void RecordChunkSums::leave(std::size_t number, runtime::Handler available, runtime::Handler over) {
  chunks_[number].available = std::move(available);
  loop_->after_work(stream_, {"gradients", "sums of squares"}, [this, number, over = std::move(over)] {
    if (!lends_) return store(number, over);
    lend(number);
    std::exchange(chunks_[number].available, nullptr)();
    over();
  });
}

/// Stores the reduced gradients until the step is committed.
void RecordChunkSums::store(std::size_t number, runtime::Handler over) {
  Chunk& chunk = chunks_[number];
  chunk.missing = chunk.buckets.size();
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    const auto& [unit, index] = chunk.buckets[i];
    records_->store_reduced(unit, index, reduced(number, i), [this, number, over] {
      Chunk& stored = chunks_[number];
      if (--stored.missing > 0) return;
      free_places_.push_back(std::exchange(stored.place, nullptr));
      while (next_available_ < chunks_.size() && chunks_[next_available_].available &&
             chunks_[next_available_].place == nullptr) {
        std::exchange(chunks_[next_available_++].available, nullptr)();
      }
      freed_();
      over();
    });
  }
}

/// Keeps the chunk on the device until the optimizer has read it. The next batch may have started by then.
void RecordChunkSums::lend(std::size_t number) {
  const Chunk& chunk = chunks_[number];
  const auto returned = [this, missing = std::make_shared<std::size_t>(chunk.buckets.size()), place = chunk.place] {
    if (--*missing > 0) return;
    free_places_.push_back(place);
    freed_();
  };
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    const auto& [unit, index] = chunk.buckets[i];
    records_->lend_reduced(unit, index, reduced(number, i), returned);
  }
}

}  // namespace ranvier::actors
