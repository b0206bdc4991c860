// Hands out places in a layer's units to the parts that it is composed of.
//
//   UnitBuilder builder;
//   const std::size_t unit = builder.add_unit("model.layers.0");
//   const ParameterPlace weight = builder.add(unit, {"model.layers.0.mlp.up_proj.weight", {F, C}, normal, true});
//   units_ = std::move(builder).units();
#pragma once

#include "models/layer.hpp"

#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

/// Where a layer finds a parameter.
struct ParameterPlace {
  std::size_t unit = 0;    ///< of the layer's units
  std::size_t offset = 0;  ///< in elements
};

class UnitBuilder {
 public:
  /// The number of a new unit, which comes after the others.
  std::size_t add_unit(std::string name) {
    units_.push_back({std::move(name), {}});
    return units_.size() - 1;
  }
  std::size_t add_unit(UnitSpec unit) {
    units_.push_back(std::move(unit));
    return units_.size() - 1;
  }

  ParameterPlace add(std::size_t unit, ParameterSpec parameter) {
    UnitSpec& spec = units_.at(unit);
    const std::size_t offset = spec.elements();
    spec.parameters.push_back(std::move(parameter));
    return {unit, offset};
  }

  [[nodiscard]] std::vector<UnitSpec> units() && { return std::move(units_); }

 private:
  std::vector<UnitSpec> units_;
};

}  // namespace ranvier::models
