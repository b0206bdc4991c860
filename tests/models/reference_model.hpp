// Language models of every family in double precision, as plain as can be: forward pass and loss, against which layers
// and, by central differences, their gradients are checked. A family is a ReferenceForm.
//
// Letters: B samples, T positions, C channels, H heads, K heads of keys and values, D channels of a head, V vocabulary.
#pragma once

#include "models/families/bert.hpp"
#include "models/families/gpt.hpp"
#include "models/families/llama.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// By name as in weights files, shaped as there.
using ReferenceParameters = std::map<std::string, std::vector<double>>;

struct ReferenceSamples {
  int samples = 1;
  std::vector<std::int32_t> tokens;     ///< [B, T]
  std::vector<std::int32_t> targets;    ///< [B, T]
  MicrobatchKey key;                    ///< dropout's key, used if the model's rate is not 0
  int positions = 0;                    ///< T if it differs from the model's; 0: the model's
  std::vector<std::int32_t> documents;  ///< SampleSource::read_documents(), of no reference; empty: none
};

/// Differences between families. Names are tensor names without ".weight" and ".bias"; empty: no such tensor. A norm
/// without a bias is RMSNorm.
struct ReferenceForm {
  bool biased = false;  ///< every matrix and norm must have a bias
  std::size_t T = 0, C = 0, H = 0, K = 0, D = 0;
  int layers = 0;
  double norm_epsilon = 1e-5;
  float dropout = 0;
  bool transposed = false;  ///< matrices are [in, out], else [out, in]
  bool norm_after = false;  ///< norm of the sum, not before the branch
  bool causal = true;
  std::size_t window = 0;                    ///< 0: all earlier positions
  std::function<double(int)> turns;          ///< radians per position by pair of channels; null: no rotation
  std::function<double(double)> activation;  ///< in the MLP, or in its gate
  std::size_t first_position = 0;            ///< row of `positions`

  std::string words, positions, types, embedding_norm;
  std::string block;  ///< prefix of the following; its number comes after it
  std::string norm_1, qkv, query, key, value, query_norm, key_norm, out, norm_2, gate, up, down;
  std::string head_dense, head_norm, table, head_bias;
  std::string class_dense, class_out;  ///< classifiers only
  bool drops_first = false;            ///< classifiers only: dropout before class_dense, too
};

class ReferenceModel {
 public:
  /// `parameters` is looked at when a loss is asked for.
  ReferenceModel(const GptOptions& options, const ReferenceParameters& parameters);
  ReferenceModel(const LlamaOptions& options, const ReferenceParameters& parameters);
  ReferenceModel(const BertOptions& options, const ReferenceParameters& parameters);

  /// Σ of the losses of tokens, or samples, that have a target. `activations`, if given, gets the output [B, T, C] of
  /// embedding and blocks, and `logits` what the head makes of the last [B, T, V].
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations = nullptr,
              std::vector<double>* logits = nullptr) const;

 private:
  ReferenceForm form_;
  const ReferenceParameters& parameters_;
};

}  // namespace ranvier::models
