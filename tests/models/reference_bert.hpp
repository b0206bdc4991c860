// BERT and RoBERTa in double precision, as plain as possible: forward pass and loss. Layers are compared with them, and
// their gradients with central differences of the loss.
//
// Letters: T positions, C channels, H heads, D channels of a head.
#pragma once

#include "models/families/bert.hpp"
#include "tests/models/reference_gpt.hpp"

#include <vector>

namespace ranvier::models {

class ReferenceBert {
 public:
  /// `parameters` is read when a loss is requested.
  ReferenceBert(const BertOptions& options, const ReferenceParameters& parameters)
      : options_(options), parameters_(parameters) {}

  /// Sum of the losses of tokens that have a target. `activations`, if given, gets the output [B, T, C] of embedding
  /// and blocks.
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr) const;

 private:
  BertOptions options_;
  const ReferenceParameters& parameters_;
};

}  // namespace ranvier::models
