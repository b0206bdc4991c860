#include "actors/gradients/gradient_tier.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <memory>
#include <span>

namespace ranvier::actors {

using collectives::Range;
using offload::BucketLayout;
using offload::Tier;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

BucketLayout layout_of(const UnitState& unit, std::size_t width) {
  return unit.cut.layout(unit.gradients.front().range, {width});
}

}  // namespace

GradientTier::Memory GradientTier::plan(const UnitStates& states, const TierOptions& options,
                                        offload::TierPlan& tiers, runtime::MemoryPlan& plan) {
  Memory memory;
  if (options.gradients == TierKind::device) return memory;
  const std::size_t width = size_of(states.precision().gradient);
  // A bucket may have more of a range of gradients than of the optimizer's, which it is cut for.
  const std::size_t most = Tier::whole_blocks(options.bucket_elements * width);
  std::size_t pieces = 0;
  for (const UnitState& unit : states.all()) {
    const BucketLayout layout = layout_of(unit, width);
    const std::size_t slot_bytes = std::min(most, layout.slot_bytes());
    memory.slot_bytes = std::max(memory.slot_bytes, slot_bytes);
    if (slot_bytes > 0) pieces += layout.buckets() * ((layout.slot_bytes() + slot_bytes - 1) / slot_bytes);
    auto& regions = memory.regions.emplace_back();
    for (std::size_t use = 0; use < unit.gradients.size(); ++use) {
      regions.push_back(tiers.reserve(options.gradients, MemoryKind::gradients, unit.spec->name + " gradients",
                                      layout.region_bytes(), plan));
    }
  }
  if (memory.slot_bytes == 0 || !states.shards_gradients()) return memory;
  memory.slot_count = std::min(options.depth, pieces);
  memory.slots = plan.add({MemoryKind::gradients, MemorySpace::device, "buckets of gradients that are added to",
                           memory.slot_bytes, memory.slot_count});
  return memory;
}

GradientTier::GradientTier(runtime::EventLoop& loop, offload::Tiers& tiers, runtime::StreamView stream,
                           const UnitStates& states, const Memory& memory, const runtime::Arena& arena)
    : loop_(&loop),
      tiers_(&tiers),
      stream_(stream),
      states_(&states),
      memory_(memory),
      width_(size_of(states.precision().gradient)) {
  for (const UnitState& unit : states.all()) {
    layouts_.push_back(layout_of(unit, width_));
    calls_.emplace_back(unit.gradients.size());
  }
  for (std::size_t s = 0; s < memory_.slot_count; ++s) free_slots_.push_back(arena.slot(*memory_.slots, s));
}

Range GradientTier::range(std::size_t unit) const { return states_->all()[unit].gradients.front().range; }

std::size_t GradientTier::offset(std::size_t unit, const Stretch& stretch) const {
  return layouts_[unit].record_offset(stretch.bucket) + stretch.begin * width_;
}

GradientTier::Stretch GradientTier::bucket(std::size_t unit, std::size_t bucket) const {
  return {bucket, 0, states_->all()[unit].cut.elements(range(unit), bucket)};
}

std::vector<GradientTier::Stretch> GradientTier::stretches(std::size_t unit, std::size_t bytes) const {
  expect(bytes > 0 && bytes % Tier::block_bytes == 0, "stretches of gradients of {} bytes, no whole blocks", bytes);
  const std::size_t most = bytes / width_;
  std::vector<Stretch> all;
  for (std::size_t b = 0; b < layouts_[unit].buckets(); ++b) {
    const Stretch whole = bucket(unit, b);
    for (std::size_t begin = 0; begin < whole.end; begin += most) {
      all.push_back({b, begin, std::min(whole.end, begin + most)});
    }
  }
  return all;
}

void GradientTier::accumulate(std::size_t unit, std::size_t use, std::byte* place, bool first,
                              runtime::Handler done) {
  call(unit, use, {first ? Call::Kind::keep : Call::Kind::add, place, std::move(done)});
}

void GradientTier::bring(std::size_t unit, std::size_t use, std::byte* place, runtime::Handler done) {
  call(unit, use, {Call::Kind::bring, place, std::move(done)});
}

void GradientTier::keep(std::size_t unit, std::size_t use, std::byte* place, runtime::Handler done) {
  call(unit, use, {Call::Kind::keep, place, std::move(done)});
}

void GradientTier::call(std::size_t unit, std::size_t use, Call call) {
  auto& queue = calls_.at(unit).at(use);
  queue.push_back(std::move(call));
  if (queue.size() == 1) start(unit, use);
}

void GradientTier::start(std::size_t unit, std::size_t use) {
  Call& call = calls_[unit][use].front();
  if (layouts_[unit].buckets() == 0) {
    call.missing = 1;
    return loop_->post([this, unit, use] { piece_done(unit, use); });
  }
  if (call.kind != Call::Kind::add) return move_records(unit, use);
  expect(memory_.slot_count > 0, "gradients of {} are added in a tier, and the plan has them whole",
         states_->all()[unit].spec->name);
  for (const Stretch& stretch : stretches(unit, memory_.slot_bytes)) {
    waiting_.push_back({unit, use, stretch});
    ++call.missing;
  }
  start_pieces();
}

/// Between the place's runs and the records, as they are.
void GradientTier::move_records(std::size_t unit, std::size_t use) {
  Call& call = calls_[unit][use].front();
  call.missing = layouts_[unit].buckets();
  for (std::size_t b = 0; b < layouts_[unit].buckets(); ++b) {
    offload::Tiers::Runs runs;
    for (const Range& run : states_->all()[unit].cut.runs(range(unit), b))
      runs.emplace_back(call.place + run.begin * width_, run.count * width_);
    const auto done = [this, unit, use] { piece_done(unit, use); };
    const std::size_t at = layouts_[unit].record_offset(b);
    if (call.kind == Call::Kind::bring) {
      tiers_->fetch(memory_.regions[unit][use], at, std::move(runs), done);
    } else {
      tiers_->store(memory_.regions[unit][use], at, std::move(runs), done);
    }
  }
}

void GradientTier::start_pieces() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const Piece piece = waiting_.front();
    waiting_.pop_front();
    std::byte* const slot = free_slots_.back();
    free_slots_.pop_back();
    move(piece, slot, true, [this, piece, slot] { add(piece, slot); });
  }
}

void GradientTier::add(const Piece& piece, std::byte* slot) {
  const std::byte* place = calls_[piece.unit][piece.use].front().place;
  const UnitState& unit = states_->all()[piece.unit];
  std::size_t at = 0;  // of the record
  for (const Range& run : unit.cut.runs(range(piece.unit), piece.part.bucket)) {
    const std::size_t begin = std::max(at, piece.part.begin), end = std::min(at + run.count, piece.part.end);
    if (begin < end) {
      runtime::add(stream_, slot + (begin - piece.part.begin) * width_, place + (run.begin + begin - at) * width_,
                   states_->precision().gradient, end - begin);
    }
    at += run.count;
  }
  loop_->after_work(stream_, {"gradients", "the addition to the sum of", unit.spec->name}, [this, piece, slot] {
    move(piece, slot, false, [this, piece, slot] {
      free_slots_.push_back(slot);
      piece_done(piece.unit, piece.use);
      start_pieces();
    });
  });
}

void GradientTier::piece_done(std::size_t unit, std::size_t use) {
  auto& queue = calls_[unit][use];
  if (--queue.front().missing > 0) return;
  const runtime::Handler done = std::move(queue.front().done);
  queue.pop_front();
  if (!queue.empty()) start(unit, use);
  done();
}

/// In whole blocks, so that files need no detour; records end on one.
void GradientTier::move(const Piece& piece, std::byte* memory, bool fetches, runtime::Handler done) {
  const std::span<std::byte> bytes(memory, Tier::whole_blocks(piece.part.elements() * width_));
  const offload::TierRegion region = memory_.regions[piece.unit][piece.use];
  if (fetches) {
    tiers_->fetch(region, offset(piece.unit, piece.part), bytes, std::move(done));
  } else {
    tiers_->store(region, offset(piece.unit, piece.part), bytes, std::move(done));
  }
}

void GradientTier::fetch(std::size_t unit, std::size_t use, const Stretch& stretch, std::byte* to,
                         runtime::Handler done) {
  expect(calls_.at(unit).at(use).empty(), "gradients of {} are fetched while some are under way",
         states_->all()[unit].spec->name);
  move({unit, use, stretch}, to, true, std::move(done));
}

void GradientTier::store(std::size_t unit, std::size_t use, const Stretch& stretch, std::byte* from,
                         runtime::Handler done) {
  expect(calls_.at(unit).at(use).empty(), "gradients of {} are stored while some are under way",
         states_->all()[unit].spec->name);
  move({unit, use, stretch}, from, false, std::move(done));
}

void GradientTier::store_reduced(std::size_t unit, std::size_t bucket, std::byte* from, runtime::Handler done) {
  const UnitState& state = states_->all()[unit];
  tiers_->store(memory_.regions[unit][0], layouts_[unit].record_offset(bucket),
                {from, state.cut.elements(state.reduced, bucket) * width_}, std::move(done));
}

void GradientTier::lend_reduced(std::size_t unit, std::size_t bucket, const std::byte* from,
                                runtime::Handler returned) {
  const bool is_first = lent_.try_emplace({unit, bucket}, Lent{from, std::move(returned)}).second;
  expect(is_first, "bucket {} of {} is lent before the last one was fetched", bucket,
         states_->all()[unit].spec->name);
}

void GradientTier::fetch_reduced(std::size_t unit, std::size_t bucket, std::byte* to, runtime::Handler done) {
  const UnitState& state = states_->all()[unit];
  const std::size_t bytes = state.cut.elements(state.reduced, bucket) * width_;
  auto lent = lent_.extract({unit, bucket});
  if (lent.empty()) {
    return tiers_->fetch(memory_.regions[unit][0], layouts_[unit].record_offset(bucket), {to, bytes},
                         std::move(done));
  }
  runtime::copy(stream_, to, lent.mapped().from, bytes);
  loop_->after_work(stream_, {"gradients", "the copy of what was reduced of", state.spec->name},
                    [returned = std::move(lent.mapped().returned), done = std::move(done)] {
                      returned();
                      done();
                    });
}

}  // namespace ranvier::actors
