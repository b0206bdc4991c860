// Hands out places in a layer's units to the parts that it is composed of.
//
//   UnitBuilder builder;
//   const std::size_t group = builder.add_unit("model.layers.0");
//   const ParameterRef weight = builder.add(group, {"model.layers.0.mlp.up_proj.weight", {F, C}, normal, true});
//   units_ = std::move(builder).units();
//
// What a run freezes of a group of parameters becomes a unit of its own, so that every unit is trained or frozen as a
// whole: "model.layers.0.frozen", unless nothing else is left.
#pragma once

#include "models/layer.hpp"
#include "models/tuning.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

/// Where a layer finds a parameter.
struct ParameterRef {
  std::size_t unit = 0;    ///< of the layer's units
  std::size_t offset = 0;  ///< in elements
};

class UnitBuilder {
 public:
  UnitBuilder() = default;
  explicit UnitBuilder(Tuning tuning) : tuning_(std::move(tuning)) {}

  [[nodiscard]] const Tuning& tuning() const noexcept { return tuning_; }

  /// A group of parameters that become a unit of this name, or two; its number, for add(). Units come in the order of
  /// their first parameters. `averaged`: UnitSpec::averaged of what is trained.
  std::size_t add_unit(std::string name, float averaged = 0);
  /// Such a group for each of several tiles, "name.0" …; none where there is one.
  std::vector<std::size_t> add_tiles(const std::string& name, std::size_t tiles);
  /// A unit that is complete and trained or frozen as a whole; its number among the units.
  std::size_t add_unit(UnitSpec unit);

  ParameterRef add(std::size_t group, ParameterSpec parameter);

  [[nodiscard]] std::vector<UnitSpec> units() &&;

 private:
  struct Group {
    std::string name;
    std::array<std::optional<std::size_t>, 2> units;  ///< frozen, trained
    float averaged = 0;
  };

  Tuning tuning_;
  std::vector<Group> groups_;
  std::vector<UnitSpec> units_;
};

/// Elements of all parameters of a layer's units, without the gaps between them.
[[nodiscard]] std::size_t parameters_of(std::span<const UnitSpec> units);

}  // namespace ranvier::models
