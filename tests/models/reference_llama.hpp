// LLaMA's family in double precision, as plain as can be: forward pass and loss, against which layers and, by central
// differences, their gradients are checked.
//
// Letters: T positions, C channels, H heads, K heads of keys and values, D channels of a head, F channels of the MLP.
#pragma once

#include "models/families/llama.hpp"
#include "tests/models/reference_gpt.hpp"

#include <vector>

namespace ranvier::models {

class ReferenceLlama {
 public:
  /// `parameters` is looked at when a loss is asked for.
  ReferenceLlama(const LlamaOptions& options, const ReferenceParameters& parameters)
      : options_(options), parameters_(parameters) {}

  /// Σ of the tokens' losses. `activations`, if given, gets the output [B, T, C] of embedding and blocks, and
  /// `logits` what the head makes of the last [B, T, V].
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr,
              std::vector<double>* logits = nullptr) const;

 private:
  LlamaOptions options_;
  const ReferenceParameters& parameters_;
};

}  // namespace ranvier::models
