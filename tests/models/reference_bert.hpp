// BERT and RoBERTa in double precision, as plain as can be: forward pass and loss, against which layers and, by central
// differences, their gradients are checked.
//
// Letters: T positions, C channels, H heads, D channels of a head.
#pragma once

#include "models/families/bert.hpp"
#include "tests/models/reference_gpt.hpp"

#include <vector>

namespace ranvier::models {

class ReferenceBert {
 public:
  /// `parameters` is looked at when a loss is asked for.
  ReferenceBert(const BertOptions& options, const ReferenceParameters& parameters)
      : options_(options), parameters_(parameters) {}

  /// Σ of the losses of tokens that have a target. `activations`, if given, gets the output [B, T, C] of embedding and
  /// blocks.
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr) const;

 private:
  BertOptions options_;
  const ReferenceParameters& parameters_;
};

}  // namespace ranvier::models
