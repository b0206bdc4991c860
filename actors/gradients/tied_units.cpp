#include "actors/gradients/tied_units.hpp"

#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using runtime::Channel;
using runtime::MemoryKind;
using runtime::MemorySpace;

TiedUnits::Plan TiedUnits::plan(PlanContext& planner, Options options) {
  Plan plan{.options = std::move(options), .has_places = {}, .messages_of_each = 0, .places = {}};
  const bool in_tier = planner.tiers.gradients != TierKind::device;
  std::size_t units = 0;
  for (std::size_t u = 0; u < planner.share.states->all().size(); ++u) {
    const UnitState& unit = planner.share.states->all()[u];
    const bool has_two = unit.trained() && unit.gradients.size() > 1;
    const bool has = plan.options.partners[u].has_value() || (in_tier && has_two);
    plan.has_places.push_back(has);
    units += has;
  }
  const std::size_t sharing = std::max<std::size_t>(units, 1);
  plan.messages_of_each = runtime::ceil_divide(static_cast<std::size_t>(plan.options.depth), sharing);
  // Each unit has separate buffers, since the two stages may complete units in different orders.
  plan.places =
      planner.memory.add({MemoryKind::messages, MemorySpace::device,
                          in_tier ? "tied gradients being added" : "tied gradients arriving from the other stage",
                          units == 0 ? 0 : TiedGradientSum::place_bytes(plan.options.message_bytes, in_tier),
                          units * plan.messages_of_each});
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
                     GradientRecords* records)
    : partners_(plan.options.partners) {
  const bool sums_alike = share.column->source == nullptr || share.column->source->sums_alike();
  std::size_t taken = 0;
  for (std::size_t u = 0; u < partners_.size(); ++u) {
    const UnitState& unit = share.states->all()[u];
    const std::optional<int> partner = partners_[u];
    std::vector<std::byte*> places;
    for (std::size_t p = 0; p < plan.messages_of_each && plan.has_places[u]; ++p) {
      places.push_back(context.arena.slot(plan.places, taken++));
    }
    const std::size_t bytes = plan.options.message_bytes;
    auto& sum = sums_.emplace_back();
    if (partner || (unit.trained() && unit.gradients.size() > 1)) {
      sum = std::make_unique<TiedGradientSum>(
          context, *share.states, records,
          TiedGradientSum::Options{
              .unit = u, .partner = partner, .message_bytes = bytes, .places = std::move(places)});
    }
    auto& copy = copies_.emplace_back();
    if (!partner || sums_alike || share.flow.reduce_batch.empty()) continue;
    copy = std::make_unique<TiedGradientCopy>(
        context, TiedGradientCopy::Options{.unit = unit.spec->name,
                                           .partner = *partner,
                                           .sends = context.transport.rank() < *partner,
                                           .tag = {Channel::tied, static_cast<std::uint32_t>(unit.global_index)},
                                           .message_bytes = bytes,
                                           .depth = plan.messages_of_each});
  }
}

void TiedUnits::sum_uses(std::size_t unit, runtime::Handler done) {
  if (!sums_[unit]) return done();
  sums_[unit]->run(std::move(done));
}

void TiedUnits::copy(std::size_t unit, const std::vector<runtime::Bytes>& runs, runtime::Handler done) {
  copies_[unit]->run(runs, std::move(done));
}

std::vector<Wait> TiedUnits::waits() const {
  std::vector<Wait> all;
  for (const auto& sum : sums_) {
    if (sum) append(all, sum->waits());
  }
  for (const auto& copy : copies_) {
    if (copy) append(all, copy->waits());
  }
  return all;
}

std::vector<int> TiedUnits::peers() const {
  std::vector<int> all;
  for (const auto& partner : partners_) {
    if (partner) all.push_back(*partner);
  }
  return all;
}

}  // namespace ranvier::actors
