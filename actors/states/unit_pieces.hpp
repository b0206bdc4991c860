// Whose pieces of units a rank needs for passes, and where its own lie. Any thread.
#pragma once

#include "actors/states/model_share.hpp"

#include <cstddef>

namespace ranvier::actors {

class UnitPieces {
 public:
  /// The share outlives it.
  explicit UnitPieces(const ModelShare& share) noexcept
      : states_(share.states.get()), column_(share.column.get()) {}

  /// The team whose pieces are a unit's for such passes: all of the column, or a group that keeps secondary copies.
  [[nodiscard]] collectives::TeamKind team(bool backward) const noexcept {
    return scope(backward) == collectives::Scope::global ? collectives::TeamKind::column
                                                         : collectives::TeamKind::group;
  }
  [[nodiscard]] const collectives::Team& owners(bool backward) const {
    return column_->layout.team(team(backward));
  }
  /// In how many pieces a unit is then.
  [[nodiscard]] std::size_t count(bool backward) const {
    return static_cast<std::size_t>(column_->layout.pieces(scope(backward)));
  }
  /// The piece of a row.
  [[nodiscard]] collectives::Range range(std::size_t unit, bool backward, int row) const {
    return column_->layout.range(scope(backward), states_->all()[unit].elements, row);
  }

  /// Whether this rank's piece is a copy of its own, beside what it holds for forward passes.
  [[nodiscard]] bool secondary(std::size_t unit, bool backward) const {
    return backward && states_->all()[unit].secondary.has_value();
  }
  /// This rank's piece lies in it, where parameters live on the device.
  [[nodiscard]] const UnitPart& source(std::size_t unit, bool backward) const {
    const UnitState& state = states_->all()[unit];
    return secondary(unit, backward) ? *state.secondary : state.parameters;
  }

 private:
  [[nodiscard]] collectives::Scope scope(bool backward) const noexcept {
    const collectives::Sharding& sharding = column_->sharding;
    return backward && sharding.secondary_parameters ? collectives::Scope::group : sharding.parameters;
  }

  const UnitStates* states_;
  const ColumnOptions* column_;
};

}  // namespace ranvier::actors
