// A wide residual network's loss in double precision, by plain loops over images: an independent implementation.
// Losses, activations and gradients are compared with it.
#pragma once

#include "models/families/resnet.hpp"
#include "tests/models/reference_model.hpp"

#include <vector>

namespace ranvier::models {

class ReferenceResnet {
 public:
  /// `fixed`: normalized by running statistics. `parameters` is read when a loss is requested.
  ReferenceResnet(const ResnetOptions& options, const ReferenceParameters& parameters, bool fixed = false)
      : options_(options), parameters_(parameters), fixed_(fixed) {}

  /// Sum over the samples. `activations` gets the outputs of all layers but the last, statistics() the mean and the
  /// unbiased variance of each norm's input.
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr) const;

  /// Statistics of the last loss, by the norm's name.
  [[nodiscard]] const ReferenceParameters& statistics() const { return statistics_; }

 protected:
  ResnetOptions options_;
  const ReferenceParameters& parameters_;
  bool fixed_;
  mutable ReferenceParameters statistics_;
};

}  // namespace ranvier::models
