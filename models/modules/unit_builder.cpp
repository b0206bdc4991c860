#include "models/modules/unit_builder.hpp"

#include <fmt/format.h>

#include <utility>

namespace ranvier::models {

std::size_t UnitBuilder::add_unit(std::string name, float averaged) {
  groups_.push_back({std::move(name), {}, averaged});
  return groups_.size() - 1;
}

std::vector<std::size_t> UnitBuilder::add_tiles(const std::string& name, std::size_t tiles) {
  std::vector<std::size_t> groups;
  for (std::size_t t = 0; tiles > 1 && t < tiles; ++t) groups.push_back(add_unit(fmt::format("{}.{}", name, t)));
  return groups;
}

std::size_t UnitBuilder::add_unit(UnitSpec unit) {
  units_.push_back(tuned(std::move(unit), tuning_));
  return units_.size() - 1;
}

ParameterRef UnitBuilder::add(std::size_t group, ParameterSpec parameter) {
  const bool trained = tuning_.trains(parameter.name);
  std::optional<std::size_t>& number = groups_.at(group).units[trained ? 1 : 0];
  if (!number) {
    number = units_.size();
    units_.push_back(
        {.name = {}, .parameters = {}, .trained = trained, .averaged = trained ? groups_[group].averaged : 0});
  }
  UnitSpec& unit = units_[*number];
  const std::size_t offset = unit.elements();
  unit.parameters.push_back(std::move(parameter));
  return {*number, offset};
}

std::vector<UnitSpec> UnitBuilder::units() && {
  for (const auto& [name, units, averaged] : groups_) {
    const auto& [frozen, trained] = units;
    if (trained) units_[*trained].name = name;
    if (frozen) units_[*frozen].name = trained ? name + ".frozen" : name;
  }
  return std::move(units_);
}

}  // namespace ranvier::models
