// Last layer of a language model: final norm, logits, cross entropy against targets (int32 [B, T]). Masked language
// models add a linear map and GELU before the norm, and a bias of the logits. If few positions have a target, only
// their logits are computed. Units: the table's, then one with all other parameters.
#pragma once

#include "models/modules/norm.hpp"
#include "models/modules/token_table.hpp"
#include "models/ops/activation.hpp"

#include <memory>
#include <optional>
#include <string>

namespace ranvier::models {

/// gelu(x · weightᵀ + bias), with C inputs and C outputs.
struct HeadTransform {
  std::string name;  ///< name of weight and bias
  GeluForm gelu = GeluForm::erf;
  Initializer initializer;
};

struct LanguageHeadOptions {
  TokenTable table;
  std::string norm_name;  ///< name of the norm's parameters
  NormShape norm;
  std::string unit;                        ///< name of the unit without the table; empty: the norm's name
  std::optional<HeadTransform> transform;  ///< before the norm; its matrix is never tiled
  std::string bias;                        ///< name of the logits' bias; empty: none
  int targets = 0;  ///< largest number of targets per sample, whose logits are computed; 0: all positions
};

[[nodiscard]] std::unique_ptr<Layer> make_language_head(const LanguageHeadOptions& options, UnitBuilder builder);

}  // namespace ranvier::models
