#include "actors/weight_collector.hpp"

#include <algorithm>

namespace ranvier::actors {

using runtime::Channel;
using runtime::Tag;

namespace {

constexpr std::size_t piece_elements = std::size_t{1} << 20;

}  // namespace

WeightCollector::WeightCollector(runtime::Transport& transport, Trainer& trainer,
                                 const models::Architecture& architecture, const runtime::GridShape& grid)
    : transport_(&transport), trainer_(&trainer), piece_(piece_elements) {
  const runtime::Grid ranks(grid, grid.ranks());
  const auto stages = stage_layers(architecture, grid.g_inter);
  for (models::UnitSpec& unit : architecture.units()) {
    for (int s = grid.g_inter; s-- > 0;) {  // the first stage that has it stays
      if (uses_unit(architecture, stages[static_cast<std::size_t>(s)], unit.name)) {
        const int owner = ranks.rank({s, 0});
        if (!units_.empty() && units_.back().spec.name == unit.name) units_.pop_back();
        units_.push_back({unit, owner});
      }
    }
  }
}

void WeightCollector::run(Sink sink, runtime::Handler done) {
  sink_ = std::move(sink);
  done_ = std::move(done);
  unit_ = begin_ = 0;
  next();
}

void WeightCollector::next() {
  const bool collects = transport_->rank() == 0;
  while (unit_ < units_.size() && units_[unit_].owner != transport_->rank() && !collects) ++unit_;
  if (unit_ == units_.size()) return done_();
  const Owned& unit = units_[unit_];
  const std::size_t begin = begin_;
  const std::size_t count = std::min(piece_elements, unit.spec.elements() - begin);
  const std::span<float> values(piece_.data(), count);
  begin_ += count;
  if (begin_ == unit.spec.elements()) {
    begin_ = 0;
    ++unit_;
  }
  const Tag tag{Channel::weights, 0};
  if (unit.owner != transport_->rank()) {
    return transport_->receive(unit.owner, tag, std::as_writable_bytes(values),
                               [this, &unit, begin, values] { store(unit.spec, begin, values); });
  }
  const auto& states = trainer_->plan().states->all();
  const auto state = std::find_if(states.begin(), states.end(),
                                  [&](const UnitState& s) { return s.spec->name == unit.spec.name; });
  trainer_->read_weights(static_cast<std::size_t>(state - states.begin()), begin, values,
                         [this, &unit, begin, values, tag, collects] {
                           if (collects) return store(unit.spec, begin, values);
                           transport_->send(0, tag, std::as_bytes(values), [this] { next(); });
                         });
}

void WeightCollector::store(const models::UnitSpec& unit, std::size_t begin, std::span<const float> values) {
  sink_(unit, begin, values, [this] { next(); });
}

}  // namespace ranvier::actors
