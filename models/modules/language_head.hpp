// The last layer of a language model: final norm, logits, cross entropy against targets (int32 [B, T]). For masked
// language models a product and GELU come before the norm, logits have a bias, and where few positions have a target
// those alone are computed. Units: the table's, then one of all the rest.
#pragma once

#include "models/ops/gelu.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/token_table.hpp"

#include <memory>
#include <optional>
#include <string>

namespace ranvier::models {

/// gelu(x · weightᵀ + bias), of as many channels.
struct HeadTransform {
  std::string name;  ///< of the weight and its bias
  GeluForm gelu = GeluForm::erf;
  Initializer initializer;
};

struct LanguageHeadOptions {
  TokenTable table;
  std::string norm_name;  ///< of the norm's parameters
  NormOptions norm;
  Precision precision;
  std::string unit;                        ///< of all but the table; empty: the norm's name
  std::optional<HeadTransform> transform;  ///< before the norm; its matrix is whole, whatever the table's tiles
  std::string bias;                        ///< of the logits, by name; empty: they have none
  int targets = 0;  ///< positions of a sample that have a target at most: it computes so many; 0: all
};

[[nodiscard]] std::unique_ptr<Layer> make_language_head(const LanguageHeadOptions& options,
                                                        const Tuning& tuning = {});

}  // namespace ranvier::models
