#include "models/layer.hpp"

#include <algorithm>
#include <numeric>

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
    begin += (stored + alignment - 1) / alignment * alignment;
  }
  return begin;
}

std::size_t UnitSpec::elements() const { return offset(parameters.size()); }

LayerParts Layer::parts() const {
  std::vector<std::size_t> all(units().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return {{all}, {all}, {all}};
}

}  // namespace ranvier::models
