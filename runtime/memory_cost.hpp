// How work states its cost (work_cost.hpp), so that a profile's rates mean the same for all of it:
//
//   bytes  read and written, each array once, one that is changed in place twice; workspaces and what lies between the
//          parts of an array count nothing. Of a host_copy: what crosses the link, once
//   flops  of products and attention alone, 2 for a multiplication and an addition. Attention's pairs are those that
//          causality and window leave; what documents hide only the device knows. Its backward pass has five products
//          where the forward one has two, as it computes the scores again; MFU counts four
//   dtype  of what is read; f32 where bytes are copied, whatever they mean
#pragma once

#include "runtime/work_cost.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// Of work that memory bounds.
[[nodiscard]] inline WorkCost memory_cost(WorkKind kind, DType dtype, std::size_t bytes) {
  return {.kind = kind, .dtype = dtype, .bytes = static_cast<double>(bytes)};
}

[[nodiscard]] inline WorkCost elementwise_cost(std::size_t bytes, DType dtype = DType::f32) {
  return memory_cost(WorkKind::elementwise, dtype, bytes);
}

}  // namespace ranvier::runtime
