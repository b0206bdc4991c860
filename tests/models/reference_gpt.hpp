// GPT-2 in double precision, as plain as possible: forward pass and loss. Layers are compared with it, and their
// gradients with central differences of the loss.
//
// Letters: B samples, T positions, C channels, H heads, D = C/H, V vocabulary.
#pragma once

#include "models/families/gpt.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ranvier::models {

/// By name and with shapes as in weights files.
using ReferenceParameters = std::map<std::string, std::vector<double>>;

struct ReferenceSamples {
  int samples = 1;
  std::vector<std::int32_t> tokens;     ///< [B, T]
  std::vector<std::int32_t> targets;    ///< [B, T]
  MicrobatchKey key;                    ///< counter for dropout, which is active if the model's rate is not 0
  int positions = 0;                    ///< T, if different from the model's
  std::vector<std::int32_t> documents;  ///< as in SampleSource::read_documents(); unused by references; empty: none
};

class ReferenceGpt {
 public:
  /// `parameters` is read when a loss is requested.
  ReferenceGpt(const GptOptions& options, const ReferenceParameters& parameters)
      : options_(options), parameters_(parameters) {}

  /// Sum of the tokens' losses. `activations`, if given, gets the output [B, T, C] of embedding and blocks, and
  /// `logits` the head's output for the last one [B, T, V].
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr,
              std::vector<double>* logits = nullptr) const;

 private:
  GptOptions options_;
  const ReferenceParameters& parameters_;
};

}  // namespace ranvier::models
