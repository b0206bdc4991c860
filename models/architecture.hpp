// A model as a list of layers, each with its cost. Plain data plus the layers' own code; knows no ranks.
#pragma once

#include "models/layer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace ranvier::models {

struct Architecture {
  std::string name;
  int positions = 1;    ///< T
  Precision precision;  ///< that all layers were made for
  std::vector<std::unique_ptr<Layer>> layers;

  /// All units, each once, in the order of the layers that first declare them.
  [[nodiscard]] std::vector<UnitSpec> units() const;
  /// Elements of all parameters, without gaps and padding.
  [[nodiscard]] std::size_t parameters() const;
  [[nodiscard]] double flops_per_sample() const;
};

/// A contiguous slice of an architecture's layers.
struct LayerRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Cuts layers of these costs into `stages` non-empty slices such that the most expensive one is as cheap as
/// possible, and among those cuts the earliest stages are the fullest. Throws ErrorCode::usage if there are
/// fewer layers than stages.
[[nodiscard]] std::vector<LayerRange> balance(const std::vector<double>& costs, int stages);

}  // namespace ranvier::models
