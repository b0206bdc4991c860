// A wide residual network's loss in double precision, by plain loops over images: an independent implementation,
// against which losses, activations and gradients are tested.
#pragma once

#include "models/families/resnet.hpp"
#include "tests/models/reference_gpt.hpp"

#include <vector>

namespace ranvier::models {

class ReferenceResnet {
 public:
  /// `fixed`: normalised by running statistics. `parameters` is looked at when a loss is asked for.
  ReferenceResnet(const ResnetOptions& options, const ReferenceParameters& parameters, bool fixed = false)
      : options_(options), parameters_(parameters), fixed_(fixed) {}

  /// Σ over the samples. The outputs of all layers but the last go to `activations`, the mean and the unbiased variance
  /// of each norm's input to statistics().
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr) const;

  /// Of the last loss, by the norm's name.
  [[nodiscard]] const ReferenceParameters& statistics() const { return statistics_; }

 private:
  ResnetOptions options_;
  const ReferenceParameters& parameters_;
  bool fixed_;
  mutable ReferenceParameters statistics_;
};

}  // namespace ranvier::models
