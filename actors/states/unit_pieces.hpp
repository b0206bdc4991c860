// Whose pieces of units a rank needs for passes, and where its own lie. Any thread.
#pragma once

#include "actors/states/model_share.hpp"

#include <compare>
#include <cstddef>
#include <optional>
#include <set>

namespace ranvier::actors {

class UnitPieces {
 public:
  /// The share outlives it.
  explicit UnitPieces(const ModelShare& share) noexcept
      : states_(share.states.get()), column_(share.column.get()) {}

  /// In how many pieces a unit is for such passes.
  [[nodiscard]] std::size_t count(std::size_t unit, bool backward) const {
    return static_cast<std::size_t>(column_->layout.pieces(scope(unit, backward)));
  }
  /// Whether passes need pieces of other ranks.
  [[nodiscard]] bool are_others(std::size_t unit, bool backward) const {
    return !states_->all()[unit].in_place() && count(unit, backward) > 1;
  }
  /// Whose pieces they are, and where those ranks have them: units for which this is equal come together.
  struct From {
    collectives::TeamKind team = collectives::TeamKind::column;  ///< or a group, which may keep secondary copies
    bool secondary = false;                                      ///< of units that have such copies
    TierKind tier = TierKind::device;

    friend auto operator<=>(const From&, const From&) = default;
  };
  /// None where passes need no pieces of other ranks.
  [[nodiscard]] std::optional<From> from(std::size_t unit, bool backward) const {
    if (!are_others(unit, backward)) return std::nullopt;
    const UnitState& state = states_->all()[unit];
    const bool of_column = scope(unit, backward) == collectives::Scope::global;
    return From{of_column ? collectives::TeamKind::column : collectives::TeamKind::group,
                state.secondary.has_value(), state.tier};
  }
  [[nodiscard]] const collectives::Team& owners(const From& from) const { return column_->layout.team(from.team); }
  /// The rows that this rank gets pieces from, and gives pieces to, in any pass.
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
  /// The piece of a row.
  [[nodiscard]] collectives::Range range(std::size_t unit, bool backward, int row) const {
    return column_->layout.range(scope(unit, backward), states_->all()[unit].elements, row);
  }

  /// Whether this rank's piece is a copy of its own, beside what it holds for forward passes.
  [[nodiscard]] bool secondary(std::size_t unit, bool backward) const {
    return backward && states_->all()[unit].secondary.has_value();
  }
  /// This rank's piece lies in it, where parameters live on the device.
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
