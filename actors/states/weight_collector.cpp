#include "actors/states/weight_collector.hpp"

#include "actors/states/sharded_unit.hpp"

#include <algorithm>

namespace ranvier::actors {

using runtime::Channel;
using runtime::Tag;

namespace {

constexpr std::size_t piece_elements = std::size_t{1} << 20;

}  // namespace

WeightCollector::WeightCollector(runtime::Transport& transport, Rank& rank,
                                 const models::Architecture& architecture, const runtime::GridShape& grid)
    : transport_(&transport), rank_(&rank), units_(architecture.units()), piece_(piece_elements) {
  const runtime::Grid ranks(grid, grid.ranks());
  const auto stages_of = stages_of_units(architecture, stage_layers(architecture, grid.g_inter));
  const collectives::ShardLayout& layout = rank.plan().column->layout;
  const collectives::Sharding& sharding = rank.plan().column->sharding;
  for (const models::UnitSpec& unit : units_) {
    const int stage = stages_of.at(unit.name).front();
    std::vector<bool> has_owner(static_cast<std::size_t>(layout.pieces(sharding.optimizer)), false);
    std::vector<Owned> pieces;
    for (int row = 0; row < grid.g_data; ++row) {
      const auto piece = static_cast<std::size_t>(layout.piece(sharding.optimizer, row));
      if (has_owner[piece]) continue;
      has_owner[piece] = true;
      const collectives::Range range = layout.range(sharding.optimizer, padded_elements(unit, grid.g_data), row);
      const std::size_t end = std::min(range.begin + range.count, unit.elements());
      if (range.begin < end) pieces.push_back({&unit, ranks.rank({stage, row}), range.begin, end});
    }
    std::sort(pieces.begin(), pieces.end(), [](const Owned& a, const Owned& b) { return a.begin < b.begin; });
    pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  }
}

void WeightCollector::run(Sink sink, runtime::Handler done) {
  sink_ = std::move(sink);
  done_ = std::move(done);
  next_ = begin_ = 0;
  next();
}

void WeightCollector::next() {
  const bool collects = transport_->rank() == 0;
  while (next_ < pieces_.size() && pieces_[next_].owner != transport_->rank() && !collects) ++next_;
  if (next_ == pieces_.size()) return done_();
  const Owned& piece = pieces_[next_];
  const std::size_t begin = piece.begin + begin_;
  const std::size_t count = std::min(piece_elements, piece.end - begin);
  const std::span<float> values(piece_.data(), count);
  begin_ += count;
  if (begin + count == piece.end) {
    begin_ = 0;
    ++next_;
  }
  const Tag tag{Channel::weights, 0};
  if (piece.owner != transport_->rank()) {
    return transport_->receive(piece.owner, tag, std::as_writable_bytes(values),
                               [this, &piece, begin, values] { store(*piece.unit, begin, values); });
  }
  const auto& states = rank_->plan().states->all();
  const auto state = std::find_if(states.begin(), states.end(),
                                  [&](const UnitState& s) { return s.spec->name == piece.unit->name; });
  rank_->read_weights(static_cast<std::size_t>(state - states.begin()), begin, values,
                      [this, &piece, begin, values, tag, collects] {
                        if (collects) return store(*piece.unit, begin, values);
                        transport_->send(0, tag, std::as_bytes(values), [this] { next(); });
                      });
}

void WeightCollector::store(const models::UnitSpec& unit, std::size_t begin, std::span<const float> values) {
  sink_(unit, begin, values, [this] { next(); });
}

}  // namespace ranvier::actors
