// GPT-2 in double precision, as plain as can be: forward pass and loss, against which layers and, by central
// differences, their gradients are checked.
//
// Letters: B samples, T positions, C channels, H heads, D = C/H, V vocabulary.
#pragma once

#include "models/families/gpt.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ranvier::models {

/// By name as in weights files, shaped as there.
using ReferenceParameters = std::map<std::string, std::vector<double>>;

struct ReferenceSamples {
  int samples = 1;
  std::vector<std::int32_t> tokens;     ///< [B, T]
  std::vector<std::int32_t> targets;    ///< [B, T]
  MicrobatchKey key;                    ///< of dropout; dropout happens if the model's rate is not 0
  int positions = 0;                    ///< T, where it is not the model's
  std::vector<std::int32_t> documents;  ///< SampleSource::read_documents(), of no reference; empty: none
};

class ReferenceGpt {
 public:
  /// `parameters` is looked at when a loss is asked for.
  ReferenceGpt(const GptOptions& options, const ReferenceParameters& parameters)
      : options_(options), parameters_(parameters) {}

  /// Σ of the tokens' losses. `activations`, if given, gets the output [B, T, C] of embedding and blocks, and
  /// `logits` what the head makes of the last [B, T, V].
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr,
              std::vector<double>* logits = nullptr) const;

 private:
  GptOptions options_;
  const ReferenceParameters& parameters_;
};

}  // namespace ranvier::models
