#include "actors/gradients/offloaded_gradients.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::actors {

using collectives::Range;
using offload::IoKind;
using offload::Tier;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SlotPool;

bool OffloadedGradients::stepped_in_place(const PlanContext& planner) {
  return planner.tiers.gradients == TierKind::host && planner.tiers.step == StepLocation::host &&
         planner.share.flow.gather_gradient.empty();
}

OffloadedGradients::Plan OffloadedGradients::plan(PlanContext& planner) {
  Plan plan{.slots = {}, .records = {}, .stepped_in_place = stepped_in_place(planner)};
  const TierOptions& options = planner.tiers;
  if (options.gradients == TierKind::device) return plan;
  const UnitStates& states = *planner.share.states;
  const std::size_t width = size_of(states.precision().gradient);
  // Buckets are sized for the optimizer's range; a range of gradients may have more elements in a bucket.
  const std::size_t most = Tier::whole_blocks(options.bucket_elements * width);
  std::size_t stretches = 0, max_bytes = 0;
  for (const UnitState& unit : states.all()) {
    const ShardRecords records(unit.cut, unit.gradients.front().range, {states.precision().gradient});
    const std::size_t record_bytes = records.slot_bytes(), slot_bytes = std::min(most, record_bytes);
    max_bytes = std::max(max_bytes, slot_bytes);
    if (slot_bytes > 0) stretches += records.buckets() * runtime::ceil_divide(record_bytes, slot_bytes);
    plan.records.emplace_back(unit.gradients.size(), records);
    for (ShardRecords& of_use : plan.records.back())
      of_use.reserve(planner, options.gradients, MemoryKind::gradients, unit.spec->name + " gradients");
  }
  if (max_bytes == 0 || !states.shards_gradients()) return plan;
  plan.slots = SlotPool::plan(planner.memory,
                              {MemoryKind::gradients, MemorySpace::device, "buckets of gradients that are added to",
                               max_bytes, std::min(options.depth, stretches)});
  return plan;
}

OffloadedGradients::OffloadedGradients(const RankContext& context, const ModelShare& share, const Plan& plan)
    : context_(&context),
      states_(share.states.get()),
      plan_(plan),
      width_(size_of(share.states->precision().gradient)),
      slots_(context.arena, plan.slots) {
  for (const UnitState& unit : states_->all()) calls_.emplace_back(unit.gradients.size());
}

Range OffloadedGradients::range(std::size_t unit) const { return states_->all()[unit].gradients.front().range; }

OffloadedGradients::Stretch OffloadedGradients::bucket(std::size_t unit, std::size_t bucket) const {
  return {bucket, 0, states_->all()[unit].cut.elements(range(unit), bucket)};
}

std::vector<OffloadedGradients::Stretch> OffloadedGradients::stretches(std::size_t unit, std::size_t bytes) const {
  expect(bytes > 0 && bytes % Tier::block_bytes == 0, "stretches of gradients of {} bytes, no whole blocks", bytes);
  const std::size_t most = bytes / width_;
  std::vector<Stretch> all;
  for (std::size_t b = 0; b < records(unit).buckets(); ++b) {
    const Stretch whole = bucket(unit, b);
    for (std::size_t begin = 0; begin < whole.end; begin += most) {
      all.push_back({b, begin, std::min(whole.end, begin + most)});
    }
  }
  return all;
}

void OffloadedGradients::call(Call kind, std::size_t unit, std::size_t use, std::byte* place,
                              runtime::Handler done) {
  auto& queue = calls_.at(unit).at(use);
  queue.push_back([=, this, &queue, done = std::move(done)] {
    start(kind, unit, use, place, [&queue, done] {
      queue.pop_front();
      if (!queue.empty()) queue.front()();
      done();
    });
  });
  if (queue.size() == 1) queue.front()();
}

void OffloadedGradients::start(Call kind, std::size_t unit, std::size_t use, std::byte* place,
                               runtime::Handler done) {
  const ShardRecords& records = this->records(unit, use);
  if (kind != Call::add || records.buckets() == 0)
    return records.move(*context_, kind == Call::fetch ? IoKind::read : IoKind::write, place, std::move(done));
  expect(plan_.slots.slots > 0, "gradients of {} are added in a tier, and the plan has them whole",
         states_->all()[unit].spec->name);
  const std::vector<Stretch> all = stretches(unit, plan_.slots.bytes);
  const auto one_added = runtime::last_of(all.size(), std::move(done));
  for (const Stretch& stretch : all) {
    slots_.when_free([=, this](const SlotPool::Slot& slot) {
      const auto added = [this, slot, one_added] {
        slot.release();
        one_added();
        slots_.serve();
      };
      move_blocks(IoKind::read, unit, use, stretch, slot.data(), [=, this] {
        const UnitState& state = states_->all()[unit];
        BucketPartition::Spread spread = state.cut.spread(range(unit), stretch.bucket);
        spread.runs.first = stretch.begin;
        runtime::add(context_->reduce, slot.data(), place + spread.begin * width_, states_->precision().gradient,
                     stretch.elements(), {}, spread.runs);
        context_->loop.after_work(
            context_->reduce, {"gradients", "the addition to the sum of", state.spec->name},
            [=, this] { move_blocks(IoKind::write, unit, use, stretch, slot.data(), added); });
      });
    });
  }
}

/// Moves complete blocks, so that files need no staging; records end on a block.
void OffloadedGradients::move_blocks(IoKind kind, std::size_t unit, std::size_t use, const Stretch& stretch,
                                     std::byte* memory, runtime::Handler done) {
  records(unit, use).move_record(*context_, kind, stretch.bucket, stretch.begin * width_,
                                 {memory, Tier::whole_blocks(stretch.elements() * width_)}, std::move(done));
}

void OffloadedGradients::move(IoKind kind, std::size_t unit, std::size_t use, const Stretch& stretch,
                              std::byte* memory, runtime::Handler done) {
  expect(calls_.at(unit).at(use).empty(), "gradients of {} are {} while some are under way",
         states_->all()[unit].spec->name, kind == IoKind::read ? "fetched" : "stored");
  move_blocks(kind, unit, use, stretch, memory, std::move(done));
}

void OffloadedGradients::store_reduced(std::size_t unit, std::size_t bucket, std::byte* from,
                                       runtime::Handler done) {
  const UnitState& state = states_->all()[unit];
  records(unit).move_record(*context_, IoKind::write, bucket, 0,
                            {from, state.cut.elements(state.reduced, bucket) * width_}, std::move(done));
}

const std::byte* OffloadedGradients::reduced(std::size_t unit, std::size_t bucket) const {
  return records(unit).memory(*context_, records(unit).record_offset(bucket));
}

void OffloadedGradients::lend_reduced(std::size_t unit, std::size_t bucket, const std::byte* from,
                                      runtime::Handler returned) {
  const bool is_first = lent_.try_emplace({unit, bucket}, Lent{from, std::move(returned)}).second;
  expect(is_first, "bucket {} of {} is lent before the last one was fetched", bucket,
         states_->all()[unit].spec->name);
}

void OffloadedGradients::fetch_reduced(std::size_t unit, std::size_t bucket, std::byte* to, runtime::Handler done) {
  const UnitState& state = states_->all()[unit];
  const std::size_t bytes = state.cut.elements(state.reduced, bucket) * width_;
  auto lent = lent_.extract({unit, bucket});
  if (lent.empty())
    return records(unit).move_record(*context_, IoKind::read, bucket, 0, {to, bytes}, std::move(done));
  runtime::copy(context_->reduce, to, lent.mapped().from, bytes);
  context_->loop.after_work(context_->reduce, {"gradients", "the copy of what was reduced of", state.spec->name},
                            [returned = std::move(lent.mapped().returned), done = std::move(done)] {
                              returned();
                              done();
                            });
}

}  // namespace ranvier::actors
