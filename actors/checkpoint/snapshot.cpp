#include "actors/checkpoint/snapshot.hpp"

#include "offload/checkpoint/manifest.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::checkpoint_segment_bytes;
using offload::Tier;
using runtime::SlotPool;
using runtime::StreamWidth;

namespace {

constexpr std::size_t no_bucket = ~std::size_t{0};

/// Buckets in the order in which steps change them, then buckets of frozen units.
std::vector<ChunkSchedule::Bucket> all_buckets(const ModelShare& share, const Optimizer::Plan& optimizer) {
  std::vector<ChunkSchedule::Bucket> buckets;
  for (const std::size_t bundle : optimizer.order(share.chunks))
    append(buckets, share.chunks.bundles[bundle].buckets);
  for (std::size_t u = 0; u < share.states->all().size(); ++u) {
    const UnitState& unit = share.states->all()[u];
    for (std::size_t b = 0; !unit.trained() && b < unit.cut.buckets(); ++b) buckets.push_back({u, b});
  }
  return buckets;
}

/// A bucket's range in this rank's finest shard, without padding.
Range finest(const UnitState& unit, const collectives::ShardLayout& layout, std::size_t bucket) {
  const Range slice = unit.cut.slice(bucket);
  const std::size_t begin = layout.range(collectives::Scope::global, unit.elements).begin + slice.begin;
  const std::size_t end = std::min(begin + slice.count, unit.spec->elements());
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace

Snapshot::Plan Snapshot::plan(PlanContext& planner, const Options& options, const Optimizer::Plan& optimizer) {
  Plan plan;
  std::size_t max_bytes = 0;
  const UnitStates& states = *planner.share.states;
  for (const ChunkSchedule::Bucket& bucket : all_buckets(planner.share, optimizer)) {
    if (!options.writes[bucket.unit]) continue;
    const UnitState& unit = states.all()[bucket.unit];
    const Range range = finest(unit, planner.share.column->layout, bucket.index);
    plan.buckets.push_back({bucket, plan.pieces.size(), plan.pieces.size()});
    for (std::size_t array = 0; array < planner.tiers.arrays_of(unit.trained()); ++array) {
      const UnitView& view = unit.view(kind_of(unit.trained(), array));
      const std::size_t most = runtime::elements_in(checkpoint_segment_bytes, view.dtype);
      for (const Range& part : view.stored.in(range)) {
        for (std::size_t at = 0; at < part.count; at += most) {
          plan.pieces.push_back({bucket.unit, array, part.begin + at, std::min(most, part.count - at), view.dtype});
          max_bytes = std::max(max_bytes, plan.pieces.back().bytes());
        }
      }
    }
    plan.buckets.back().end = plan.pieces.size();
  }
  if (plan.pieces.empty()) return plan;
  // Ranges in files may start and end within a file block.
  const std::size_t bytes = Tier::whole_blocks(max_bytes) + 2 * Tier::block_bytes;
  plan.staging = SlotPool::plan(
      planner.memory, {runtime::MemoryKind::workspace, runtime::MemorySpace::pinned, "checkpoint staging", bytes,
                       std::clamp<std::size_t>(options.staging_bytes / bytes, 1, plan.pieces.size())});
  return plan;
}

Snapshot::Snapshot(const RankContext& context, const ModelShare& share, const Plan& plan, Optimizer& optimizer)
    : context_(&context),
      states_(share.states.get()),
      optimizer_(&optimizer),
      plan_(plan),
      buckets_(plan.buckets.size()),
      slots_(context.arena, plan.staging) {
  copies_ = context.device.make_stream("checkpoint", StreamWidth::one);
  hashes_ = context.host.make_stream("checkpoint hashes", StreamWidth::one);
  for (const UnitState& unit : states_->all()) number_of_.emplace_back(unit.cut.buckets(), no_bucket);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Plan::Bucket& bucket = plan_.buckets[b];
    number_of_[bucket.bucket.unit][bucket.bucket.index] = b;
  }
  optimizer.guard_with([this](const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go) {
    before_change(bucket, copy, std::move(go));
  });
}

Snapshot::~Snapshot() { finish_streams({copies_.get(), hashes_.get()}); }

std::string Snapshot::details() const {
  return under_way() ? fmt::format("{} of {} pieces of a checkpoint to go", put_missing_, plan_.pieces.size())
                     : std::string();
}

std::span<std::byte> Snapshot::blocks(std::size_t piece, const SlotPool::Slot& slot) const {
  return {slot.data(), Tier::whole_blocks(plan_.pieces[piece].bytes())};
}

bool Snapshot::wants(const StatePiece& piece) const {
  return selection_.arrays[piece.array] && (selection_.frozen || states_->all()[piece.unit].trained());
}

void Snapshot::begin(Selection selection, StateSink& sink, runtime::Handler done) {
  expect(!under_way(), "snapshot starts before the end of the previous one");
  selection_ = selection;
  const auto wanted = [&](std::size_t begin, std::size_t end) {
    return static_cast<std::size_t>(std::ranges::count_if(std::span(plan_.pieces).subspan(begin, end - begin),
                                                          [&](const StatePiece& piece) { return wants(piece); }));
  };
  put_missing_ = wanted(0, plan_.pieces.size());
  if (put_missing_ == 0) return context_->loop.post(std::move(done));
  sink_ = &sink;
  done_ = std::move(done);
  next_bucket_ = 0;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Plan::Bucket& bucket = plan_.buckets[b];
    buckets_[b] = {.copy = optimizer_->records().number_of(bucket.bucket, StateRecords::Copy::counts),
                   .next = bucket.begin,
                   .missing = wanted(bucket.begin, bucket.end),
                   .waits = nullptr};
  }
  copy_ahead();
}

void Snapshot::copy_ahead() {
  while (slots_.has_free()) {
    if (!urgent_.empty()) {
      if (!copy_next(urgent_.front())) urgent_.pop_front();
    } else if (next_bucket_ < buckets_.size()) {
      if (!copy_next(next_bucket_)) ++next_bucket_;
    } else {
      return;
    }
  }
}

bool Snapshot::copy_next(std::size_t number) {
  BucketCopy& bucket = buckets_[number];
  const std::size_t end = plan_.buckets[number].end;
  while (bucket.next < end && !wants(plan_.pieces[bucket.next])) ++bucket.next;
  if (bucket.next == end) return false;
  copy(bucket, bucket.next++, slots_.take());
  return true;
}

void Snapshot::copy(BucketCopy& bucket, std::size_t number, const SlotPool::Slot& slot) {
  const StatePiece& piece = plan_.pieces[number];
  const StateKind kind = kind_of(states_->all()[piece.unit].trained(), piece.array);
  const StateLocation place = optimizer_->records().place(piece.unit, bucket.copy, kind, piece.begin);
  if (place.memory != nullptr) {
    runtime::copy(*copies_, slot.data(), place.memory, piece.bytes());
    return context_->loop.after_work(*copies_,
                                     {name(), "the copy of the states of", states_->all()[piece.unit].spec->name},
                                     [this, &bucket, number, slot] { copied(bucket, number, slot, 0); });
  }
  const std::size_t first = place.offset / Tier::block_bytes * Tier::block_bytes;
  const std::size_t end = Tier::whole_blocks(place.offset + piece.bytes());
  context_->tiers.move(
      offload::IoKind::read, place.region, first, {{slot.data(), end - first}},
      [this, &bucket, number, slot, begin = place.offset - first] { copied(bucket, number, slot, begin); });
}

void Snapshot::copied(BucketCopy& bucket, std::size_t number, const SlotPool::Slot& slot, std::size_t begin) {
  if (--bucket.missing == 0 && bucket.waits) {
    if (--waiting_ == 0) waited_ += context_->loop.now() - waits_since_;
    std::exchange(bucket.waits, nullptr)();
  }
  const std::size_t bytes = plan_.pieces[number].bytes();
  const std::span<std::byte> all = blocks(number, slot);
  const auto hash = std::make_shared<std::uint64_t>();
  hashes_->launch(runtime::elementwise_cost(all.size()), [begin, bytes, all, hash](runtime::ComputePool&) {
    if (begin > 0) std::memmove(all.data(), all.data() + begin, bytes);
    std::fill(all.begin() + static_cast<std::ptrdiff_t>(bytes), all.end(), std::byte{0});
    *hash = runtime::xxh3(all);
  });
  context_->loop.after_work(*hashes_, {name(), "the hash of a piece"},
                            [this, number, slot, hash] { put(number, slot, *hash); });
}

void Snapshot::put(std::size_t number, const SlotPool::Slot& slot, std::uint64_t hash) {
  sink_->put(plan_.pieces[number], number, blocks(number, slot), hash, [this, slot] {
    slot.release();
    if (--put_missing_ > 0) return copy_ahead();
    sink_ = nullptr;
    context_->loop.post(std::exchange(done_, nullptr));
  });
}

void Snapshot::before_change(const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go) {
  const std::size_t number = number_of_[bucket.unit][bucket.index];
  if (!under_way() || number == no_bucket) return go();
  BucketCopy& of_bucket = buckets_[number];
  if (of_bucket.copy != copy || of_bucket.missing == 0) return go();
  expect(!of_bucket.waits, "two steps wait for one bucket of a snapshot");
  of_bucket.waits = std::move(go);
  if (waiting_++ == 0) waits_since_ = context_->loop.now();
  urgent_.push_back(number);
}

}  // namespace ranvier::actors
