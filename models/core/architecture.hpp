// A model as a list of layers with their costs: plain data plus the layers' code, independent of ranks.
#pragma once

#include "models/core/layer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace ranvier::models {

struct Architecture {
  std::string name;
  int positions = 1;    ///< T
  Precision precision;  ///< precision of all layers
  int targets = 0;      ///< maximum targets per sample in the last layer; 0: every position may have one
  std::vector<std::unique_ptr<Layer>> layers;

  /// All units, each once, in the order of the first layers that declare them.
  [[nodiscard]] std::vector<UnitSpec> units() const;
  /// Elements of all parameters, without gaps and padding.
  [[nodiscard]] std::size_t parameters() const;
  /// Elements of the parameters of trained units.
  [[nodiscard]] std::size_t trained_parameters() const;
  /// Layer at which backward passes end: the first one with trained parameters; the number of layers if there is
  /// none; 0 if nothing is frozen.
  [[nodiscard]] std::size_t first_trained_layer() const;
  [[nodiscard]] double flops_per_sample() const;
  /// FLOP of a layer in training. A third each is for forward pass, input gradients and weight gradients. Only the
  /// trained fraction of weight gradients counts; layers before the first trained one have only the forward pass.
  [[nodiscard]] double flops_per_sample(std::size_t layer) const;
};

/// A contiguous range of an architecture's layers.
struct LayerRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Splits layers into `stages` non-empty ranges with the smallest possible maximum cost. Among equal splits, the one
/// with the fullest early stages is used. Throws ErrorCode::usage for fewer layers than stages.
[[nodiscard]] std::vector<LayerRange> balance(const std::vector<double>& costs, int stages);

}  // namespace ranvier::models
