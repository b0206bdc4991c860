// LLaMA's family in double precision, as plain as possible: forward pass and loss. Layers are compared with it, and
// their gradients with central differences of the loss.
//
// Letters: T positions, C channels, H heads, K heads of keys and values, D channels of a head, F channels of the MLP.
#pragma once

#include "models/families/llama.hpp"
#include "tests/models/reference_gpt.hpp"

#include <vector>

namespace ranvier::models {

class ReferenceLlama {
 public:
  /// `parameters` is read when a loss is requested.
  ReferenceLlama(const LlamaOptions& options, const ReferenceParameters& parameters)
      : options_(options), parameters_(parameters) {}

  /// Sum of the tokens' losses. `activations`, if given, gets the output [B, T, C] of embedding and blocks, and
  /// `logits` the head's output for the last one [B, T, V].
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr,
              std::vector<double>* logits = nullptr) const;

 private:
  LlamaOptions options_;
  const ReferenceParameters& parameters_;
};

}  // namespace ranvier::models
