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
  int targets = 0;      ///< of a sample at most, which the last layer has room for; 0: every position may have one
  std::vector<std::unique_ptr<Layer>> layers;

  /// All units, each once, in the order of the layers that first declare them.
  [[nodiscard]] std::vector<UnitSpec> units() const;
  /// Elements of all parameters, without gaps and padding.
  [[nodiscard]] std::size_t parameters() const;
  /// Those of trained units.
  [[nodiscard]] std::size_t trained_parameters() const;
  /// Where backward passes end: the first layer with trained parameters, as many as there are layers if none has. 0
  /// where nothing is frozen.
  [[nodiscard]] std::size_t first_trained_layer() const;
  [[nodiscard]] double flops_per_sample() const;
  /// Those of a layer that training comes to. A third of a layer's are its forward pass, a third its input gradients
  /// and a third its weight gradients: of those the trained share is computed, and of what is before the first
  /// trained layer the forward pass alone.
  [[nodiscard]] double flops_per_sample(std::size_t layer) const;
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
