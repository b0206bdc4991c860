// Last layer of a classifier with K classes: a row per sample, linear maps to logits, cross entropy against targets
// (int32 [B]). Text (BERT, RoBERTa): a sample's first position, a linear map, tanh and a second linear map. Images: the
// mean over the pixels and one linear map. One unit.
#pragma once

#include "models/core/layer.hpp"
#include "models/modules/unit_builder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ranvier::models {

struct ClassificationHeadOptions {
  std::string unit;
  std::string dense, out;          ///< names of the two linear maps' weights and biases; empty `dense`: one map
  std::size_t channels = 0;        ///< C
  std::size_t classes = 0;         ///< K
  std::size_t pixels = 0;          ///< pixels of an image; 0: a sample is a text
  float dropout = 0;               ///< dropout rate of the second linear map's input
  bool drops_input = false;        ///< whether the first linear map's input is dropped too
  std::uint32_t dropout_site = 0;  ///< site number for make_dropout; the next one is used too
  Initializer initializer;
};

[[nodiscard]] std::unique_ptr<Layer> make_classification_head(const ClassificationHeadOptions& options,
                                                              UnitBuilder builder);

}  // namespace ranvier::models
