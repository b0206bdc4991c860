// Rules for the cost of work (work_cost.hpp), so that rates mean the same for all kinds. Callable from any thread.
//
//   bytes  read and written, each array once, arrays changed in place twice; without workspaces and without
//          gaps inside an array. For host_copy: bytes over the link, once
//   flops  matrix multiplications and attention only; multiplication and addition count 2. Attention: pairs that the
//          causal mask and window allow, document masks ignored. It has two matrix multiplications forward and five
//          backward, of which MFU counts four
//   dtype  type of the operands read; f32 for plain copies of bytes
#pragma once

#include "runtime/device/work_cost.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// Cost of memory-bound work.
[[nodiscard]] inline WorkCost memory_cost(WorkKind kind, DType dtype, std::size_t bytes) {
  return {.kind = kind, .dtype = dtype, .bytes = static_cast<double>(bytes)};
}

[[nodiscard]] inline WorkCost elementwise_cost(std::size_t bytes, DType dtype = DType::f32) {
  return memory_cost(WorkKind::elementwise, dtype, bytes);
}

}  // namespace ranvier::runtime
