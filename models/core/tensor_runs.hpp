// A parameter's elements as contiguous runs in its tensor: one run for a complete tensor, one per row for a tile. Any
// thread.
#pragma once

#include "models/core/layer.hpp"

#include <algorithm>
#include <cstddef>

namespace ranvier::models {

/// Calls f(begin, count, at) for elements [first, last) of a parameter, in order. Each run has `count` elements. It
/// starts at element `begin` of the tensor and at element `at` of the parameter.
template <typename F>
void for_each_run(const ParameterSpec& parameter, std::size_t first, std::size_t last, F&& f) {
  if (!parameter.tile) {
    if (first < last) f(first, last - first, first);
    return;
  }
  const std::size_t columns = parameter.shape.at(1), tensor_columns = parameter.tile->tensor_shape.at(1);
  for (std::size_t at = first; at < last;) {
    const std::size_t row = at / columns, column = at % columns;
    const std::size_t count = std::min(last - at, columns - column);
    f((parameter.tile->first_row + row) * tensor_columns + parameter.tile->first_column + column, count, at);
    at += count;
  }
}

}  // namespace ranvier::models
