#include "models/core/layer.hpp"

#include <numeric>

namespace ranvier::models {

LayerPhases Layer::parts() const {
  std::vector<std::size_t> all(units().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return {{all}, {all}, {all}};
}

}  // namespace ranvier::models
