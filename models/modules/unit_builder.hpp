// Assigns the parameters of a layer's modules to its units.
//
//   UnitBuilder builder(precision, tuning);
//   const std::size_t unit = builder.add_unit("model.layers.0");
//   const ParameterRef weight = builder.add(unit, {"model.layers.0.mlp.up_proj.weight", {F, C}, normal, true});
//   set_units(std::move(builder).units());
//
// If only some parameters of a unit are frozen, these form a unit of their own, "model.layers.0.frozen".
#pragma once

#include "models/core/layer.hpp"
#include "models/core/tuning.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Position of a parameter in the layer's units.
struct ParameterRef {
  std::size_t unit = 0;    ///< index among the layer's units
  std::size_t offset = 0;  ///< elements from the start of the unit
};

class UnitBuilder {
 public:
  /// All modules have this precision.
  explicit UnitBuilder(const Precision& precision, Tuning tuning = {})
      : precision_(precision), tuning_(std::move(tuning)) {}

  [[nodiscard]] const Precision& precision() const noexcept { return precision_; }
  [[nodiscard]] const Tuning& tuning() const noexcept { return tuning_; }

  /// Adds a group of parameters, which becomes one unit of this name, or two (frozen and trained). Returns its number
  /// for add(). Units are ordered by their first parameters. `averaged`: UnitSpec::averaged of the trained unit.
  std::size_t add_unit(std::string name, float averaged = 0);
  /// Adds a group per tile, "name.0", "name.1", …; none if `tiles` is 1.
  std::vector<std::size_t> add_tiles(const std::string& name, std::size_t tiles);
  /// Adds a complete unit that is trained or frozen as a whole; returns its index among the units.
  std::size_t add_unit(UnitSpec unit);

  ParameterRef add(std::size_t group, ParameterSpec parameter);

  [[nodiscard]] std::vector<UnitSpec> units() &&;

 private:
  struct Group {
    std::string name;
    std::array<std::optional<std::size_t>, 2> units;  ///< frozen, trained
    float averaged = 0;
  };

  Precision precision_;
  Tuning tuning_;
  std::vector<Group> groups_;
  std::vector<UnitSpec> units_;
};

}  // namespace ranvier::models
