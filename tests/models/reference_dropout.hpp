// Dropout of an element, for references.
#pragma once

#include "models/ops/dropout.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// The factor of an element of a sample.
inline double dropout_factor(const Dropout& rule, std::int64_t sample, std::size_t element) {
  if (rule.rate == 0) return 1;
  const float draw = runtime::uniform(dropout_bits(rule, sample, element / 4)[element % 4]);
  return draw >= rule.rate ? 1 / (1 - static_cast<double>(rule.rate)) : 0;
}

}  // namespace ranvier::models
