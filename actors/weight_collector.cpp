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
  // Own pieces are handed on at once; the loop ends at the first one that has to travel.
  while (unit_ < units_.size()) {
    const Owned& unit = units_[unit_];
    const std::size_t begin = begin_;
    const std::size_t count = std::min(piece_elements, unit.spec.elements() - begin);
    const std::span<float> values(piece_.data(), count);
    begin_ += count;
    if (begin_ == unit.spec.elements()) {
      begin_ = 0;
      ++unit_;
    }
    const bool mine = unit.owner == transport_->rank();
    const bool collects = transport_->rank() == 0;
    if (!mine && !collects) continue;
    if (mine) {
      const auto& states = trainer_->plan().states->all();
      const auto state = std::find_if(states.begin(), states.end(),
                                      [&](const UnitState& s) { return s.spec->name == unit.spec.name; });
      trainer_->read_weights(static_cast<std::size_t>(state - states.begin()), begin, values);
    }
    const Tag tag{Channel::weights, 0};
    if (mine && collects) {
      sink_(unit.spec, begin, values);
    } else if (mine) {
      return transport_->send(0, tag, std::as_bytes(values), [this] { next(); });
    } else {
      return transport_->receive(unit.owner, tag, std::as_writable_bytes(values), [this, &unit, begin, values] {
        sink_(unit.spec, begin, values);
        next();
      });
    }
  }
  done_();
}

}  // namespace ranvier::actors
