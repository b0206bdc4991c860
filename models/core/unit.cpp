#include "models/core/unit.hpp"

#include "runtime/base/arithmetic.hpp"

namespace ranvier::models {

std::size_t ParameterSpec::elements() const {
  std::size_t product = 1;
  for (const std::size_t extent : shape) product *= extent;
  return product;
}

std::size_t UnitSpec::offset(std::size_t parameter) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parameter; ++i) {
    const std::size_t stored = std::max(parameters[i].stored_elements, parameters[i].elements());
    begin += runtime::round_up(stored, alignment);
  }
  return begin;
}

std::size_t UnitSpec::elements() const { return offset(parameters.size()); }

std::size_t parameters_of(std::span<const UnitSpec> units, bool only_trained) {
  std::size_t sum = 0;
  for (const UnitSpec& unit : units) {
    if (only_trained && !unit.trained) continue;
    for (const ParameterSpec& parameter : unit.parameters) sum += parameter.elements();
  }
  return sum;
}

}  // namespace ranvier::models
