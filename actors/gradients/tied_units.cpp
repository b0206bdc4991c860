#include "actors/gradients/tied_units.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using offload::IoKind;
using runtime::Channel;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SlotPool;

TiedUnits::Plan TiedUnits::plan(PlanContext& planner, Options options) {
  Plan plan{.options = std::move(options), .messages_of_each = 0, .places = {}};
  const bool in_tier = planner.tiers.gradients != TierKind::device;
  std::size_t units = 0;
  for (std::size_t u = 0; u < planner.share.states->all().size(); ++u) {
    const UnitState& unit = planner.share.states->all()[u];
    const bool has_two = unit.trained() && unit.gradients.size() > 1;
    units += plan.options.partners[u].has_value() || (in_tier && has_two);
  }
  const std::size_t sharing = std::max<std::size_t>(units, 1);
  plan.messages_of_each = runtime::ceil_divide(static_cast<std::size_t>(plan.options.depth), sharing);
  // Each unit has separate buffers, since the two stages may complete units in different orders.
  plan.places = planner.memory.add(
      {MemoryKind::messages, MemorySpace::device,
       in_tier ? "tied gradients being added" : "tied gradients arriving from the other stage",
       units == 0 ? 0 : plan.options.message_bytes * (in_tier ? 2 : 1), units * plan.messages_of_each});
  return plan;
}

std::vector<runtime::StagedMessages> TiedUnits::staged_messages(const UnitStates& states, const Plan& plan) {
  using Direction = runtime::StagedMessages::Direction;
  std::vector<runtime::StagedMessages> messages;
  for (std::size_t u = 0; u < states.all().size(); ++u) {
    if (!plan.options.partners[u]) continue;
    const UnitState& unit = states.all()[u];
    const auto index = static_cast<std::uint32_t>(unit.global_index);
    const std::size_t bytes = std::min(plan.options.message_bytes, unit.gradients.front().bytes());
    for (const Direction direction : {Direction::send, Direction::receive}) {
      messages.push_back({Channel::tied, direction, index, bytes, plan.messages_of_each});
    }
  }
  return messages;
}

TiedUnits::TiedUnits(const RankContext& context, const ModelShare& share, const Plan& plan,
                     OffloadedGradients* records)
    : context_(&context),
      states_(share.states.get()),
      records_(records),
      message_bytes_(plan.options.message_bytes) {
  const bool sums_alike = share.column->source == nullptr || share.column->source->sums_alike();
  const std::size_t most = message_bytes_ / size_of(states_->precision().gradient);
  std::size_t taken = 0;
  for (std::size_t u = 0; u < states_->all().size(); ++u) {
    const UnitState& unit = states_->all()[u];
    const std::optional<int> partner = plan.options.partners[u];
    const bool sums = partner || (unit.trained() && unit.gradients.size() > 1);
    std::vector<std::byte*> places;
    for (std::size_t p = 0; p < plan.messages_of_each && (partner || (sums && records != nullptr)); ++p) {
      places.push_back(context.arena.slot(plan.places, taken++));
    }
    std::vector<OffloadedGradients::Stretch> stretches;
    if (sums && records != nullptr) {
      stretches = records->stretches(u, message_bytes_);
    } else if (sums) {
      const std::size_t all = unit.gradients.front().range.count;
      for (std::size_t begin = 0; begin < all; begin += most) {
        stretches.push_back({0, begin, std::min(all, begin + most)});
      }
    }
    const runtime::InOrder sends(stretches.size());
    units_.push_back({.partner = partner,
                      .sums = sums,
                      .copies = partner && !sums_alike && !share.flow.reduce_batch.empty(),
                      .tag = {Channel::tied, static_cast<std::uint32_t>(unit.global_index)},
                      .stretches = std::move(stretches),
                      .places = SlotPool(places),
                      .sends = sends});
  }
}

void TiedUnits::sum_uses(std::size_t u, runtime::Handler done) {
  Unit& tied = units_[u];
  if (!tied.sums) return done();
  const UnitState& unit = states_->all()[u];
  expect(!tied.sum_since, "the uses of {} are added twice at a time", unit.spec->name);
  if (records_ == nullptr && !tied.partner) {
    const UnitView& sum = unit.gradients.front();
    runtime::add(context_->compute, sum.data, unit.gradients.at(1).data, sum.dtype, sum.range.count);
    return context_->loop.after_work(context_->compute, {"gradients", "the sum of the uses of", unit.spec->name},
                                     std::move(done));
  }
  if (tied.stretches.empty()) return context_->loop.post(std::move(done));
  tied.sum_since = context_->loop.now();
  const auto one_summed = runtime::last_of(tied.stretches.size(), [&tied, done = std::move(done)] {
    tied.sum_since.reset();
    done();
  });
  for (std::size_t s = 0; s < tied.stretches.size(); ++s) {
    tied.places.when_free([this, u, s, one_summed](const SlotPool::Slot& place) { sum(u, s, place, one_summed); });
  }
}

/// Sums a stretch: fetch if offloaded, exchange or fetch, add, store if offloaded.
void TiedUnits::sum(std::size_t u, std::size_t number, const SlotPool::Slot& place, runtime::Handler done) {
  Unit& tied = units_[u];
  const UnitState& unit = states_->all()[u];
  const OffloadedGradients::Stretch stretch = tied.stretches[number];
  const runtime::DType dtype = states_->precision().gradient;
  const std::size_t bytes = stretch.elements() * size_of(dtype);
  const bool offloaded = records_ != nullptr;
  std::byte* const mine =  // this stage's use 0, which receives the sum
      offloaded ? place.data() : unit.gradients.front().data + stretch.begin * size_of(dtype);
  std::byte* const other = place.data(offloaded ? message_bytes_ : 0);  // the other use
  const auto stored = [&tied, place, done = std::move(done)] {
    place.release();
    tied.places.serve();
    done();
  };
  // The sum overwrites the sent data, so send and receive must both be finished.
  const runtime::Handler one_there = runtime::last_of(2, [=, this, &unit] {
    runtime::add(context_->compute, mine, other, dtype, stretch.elements());
    context_->loop.after_work(context_->compute, {"gradients", "the sum of the uses of", unit.spec->name},
                              [=, this] {
                                if (!offloaded) return stored();
                                records_->move(IoKind::write, u, 0, stretch, mine, stored);
                              });
  });
  // Sends have the order of the receives.
  const runtime::Handler send = [=, this, &tied] {
    tied.sends.run(number, [=, this, &tied] {
      context_->transport.send(*tied.partner, tied.tag, runtime::ConstBytes(mine, bytes), one_there);
    });
  };
  if (offloaded) records_->move(IoKind::read, u, 0, stretch, mine, tied.partner ? send : one_there);
  if (!tied.partner) return records_->move(IoKind::read, u, 1, stretch, other, one_there);
  context_->transport.receive(*tied.partner, tied.tag, runtime::Bytes(other, bytes), one_there);
  if (!offloaded) send();
}

void TiedUnits::copy(std::size_t u, const std::vector<runtime::Bytes>& runs, runtime::Handler done) {
  std::vector<std::vector<runtime::Bytes>> messages;
  std::size_t room = 0;
  for (runtime::Bytes run : runs) {
    while (!run.empty()) {
      if (room == 0) {
        messages.emplace_back();
        room = message_bytes_;
      }
      const runtime::Bytes range = run.first(std::min(room, run.size()));
      messages.back().push_back(range);
      run = run.subspan(range.size());
      room -= range.size();
    }
  }
  expect(!messages.empty(), "a tied unit's bucket without elements is copied");
  Unit& tied = units_[u];
  if (tied.copying == 0) tied.copy_since = context_->loop.now();
  tied.copying += messages.size();
  const auto one_through = runtime::last_of(messages.size(), std::move(done));
  for (std::vector<runtime::Bytes>& message : messages) {
    tied.places.when_free([this, &tied, one_through, ranges = std::move(message)](const SlotPool::Slot& place) {
      const runtime::Handler through = [&tied, place, one_through] {
        --tied.copying;
        place.release();
        tied.places.serve();
        one_through();
      };
      if (context_->transport.rank() > *tied.partner)
        return context_->transport.receive(*tied.partner, tied.tag, ranges, through);
      const std::vector<runtime::ConstBytes> sent(ranges.begin(), ranges.end());
      context_->transport.send(*tied.partner, tied.tag, sent, through);
    });
  }
}

std::vector<Wait> TiedUnits::waits() const {
  std::vector<Wait> sums, copies;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& tied = units_[u];
    const std::string& name = states_->all()[u].spec->name;
    if (tied.sum_since && tied.partner)
      sums.push_back({fmt::format("the gradients of the other use of {}", name), tied.partner, *tied.sum_since});
    if (tied.copying > 0)
      copies.push_back({fmt::format("the reduced gradients of {}, {} the other stage", name,
                                    context_->transport.rank() < *tied.partner ? "which go to" : "which come from"),
                        tied.partner, tied.copy_since});
  }
  append(sums, copies);
  return sums;
}

std::vector<int> TiedUnits::peers() const {
  std::vector<int> all;
  for (const Unit& tied : units_) {
    if (tied.partner) all.push_back(*tied.partner);
  }
  return all;
}

}  // namespace ranvier::actors
