// Owners of the shards that a rank needs for passes, and location of its own shards. Any thread.
#pragma once

#include "actors/states/model_share.hpp"

#include <compare>
#include <cstddef>
#include <optional>
#include <set>

namespace ranvier::actors {

class UnitPieces {
 public:
  /// The share must outlive this object.
  explicit UnitPieces(const ModelShare& share) noexcept
      : states_(share.states.get()), column_(share.column.get()) {}

  /// Number of shards of a unit, by direction.
  [[nodiscard]] std::size_t count(std::size_t unit, bool backward) const {
    return static_cast<std::size_t>(column_->layout.pieces(scope(unit, backward)));
  }
  /// Owners of shards and their location. Units with equal values can be gathered together.
  struct From {
    collectives::TeamKind team = collectives::TeamKind::column;  ///< or a group, which may keep secondary copies
    bool secondary = false;                                      ///< whether units have secondary shards
    TierKind tier = TierKind::device;

    friend auto operator<=>(const From&, const From&) = default;
  };
  /// Returns nothing if passes need no shards of other ranks.
  [[nodiscard]] std::optional<From> from(std::size_t unit, bool backward) const {
    const UnitState& state = states_->all()[unit];
    if (state.in_place() || count(unit, backward) == 1) return std::nullopt;
    const bool of_column = scope(unit, backward) == collectives::Scope::global;
    return From{of_column ? collectives::TeamKind::column : collectives::TeamKind::group,
                state.secondary.has_value(), state.tier};
  }
  [[nodiscard]] const collectives::Team& owners(const From& from) const { return column_->layout.team(from.team); }
  /// Rows with which this rank exchanges shards in any pass.
  [[nodiscard]] std::set<int> other_rows() const {
    std::set<int> rows;
    for (std::size_t unit = 0; unit < states_->all().size(); ++unit) {
      for (const bool backward : {false, true}) {
        const auto source = from(unit, backward);
        if (!source) continue;
        const auto& members = owners(*source).members;
        rows.insert(members.begin(), members.end());
      }
    }
    rows.erase(column_->layout.rank());
    return rows;
  }
  /// Range of a row's shard.
  [[nodiscard]] collectives::Range range(std::size_t unit, bool backward, int row) const {
    return column_->layout.range(scope(unit, backward), states_->all()[unit].elements, row);
  }

  /// Returns whether this rank's shard is a secondary copy (ZeRO++).
  [[nodiscard]] bool secondary(std::size_t unit, bool backward) const {
    return backward && states_->all()[unit].secondary.has_value();
  }
  /// View that contains this rank's shard, if parameters are stored on the device.
  [[nodiscard]] const UnitView& source(std::size_t unit, bool backward) const {
    const UnitState& state = states_->all()[unit];
    return secondary(unit, backward) ? *state.secondary : state.parameters;
  }

 private:
  [[nodiscard]] collectives::Scope scope(std::size_t unit, bool backward) const {
    const collectives::Sharding& sharding = column_->sharding.of(states_->all()[unit].trained());
    return backward && sharding.secondary_parameters ? collectives::Scope::group : sharding.parameters;
  }

  const UnitStates* states_;
  const ColumnOptions* column_;
};

}  // namespace ranvier::actors
