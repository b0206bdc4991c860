// The last layer of a model that tells which of K classes a text is of: from the first position of each sample, through
// a product, tanh and a second product, to logits and cross entropy against targets (int32 [B]). BERT's and RoBERTa's
// classifiers are this, by options. One unit.
#pragma once

#include "models/layer.hpp"
#include "models/tuning.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ranvier::models {

struct ClassificationHeadOptions {
  std::string unit;
  std::string dense, out;          ///< names of the two products' weights and biases
  std::size_t channels = 0;        ///< C
  std::size_t classes = 0;         ///< K
  float dropout = 0;               ///< of what goes into the second product …
  bool drops_input = false;        ///< … and of what goes into the first
  std::uint32_t dropout_site = 0;  ///< for make_dropout: this one and the next
  Initializer initializer;
  Precision precision;
};

[[nodiscard]] std::unique_ptr<Layer> make_classification_head(const ClassificationHeadOptions& options,
                                                              const Tuning& tuning = {});

}  // namespace ranvier::models
