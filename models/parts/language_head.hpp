// The last layer of a language model: final norm, logits, cross entropy against targets (int32 [B, T]). Units: the
// table's, then that of the norm.
#pragma once

#include "models/parts/norm.hpp"
#include "models/parts/token_table.hpp"

#include <memory>
#include <string>

namespace ranvier::models {

struct LanguageHeadOptions {
  TokenTable table;
  std::string norm_name;  ///< of the norm's unit and parameters
  NormOptions norm;
  Precision precision;
};

[[nodiscard]] std::unique_ptr<Layer> make_language_head(const LanguageHeadOptions& options,
                                                        const Tuning& tuning = {});

}  // namespace ranvier::models
