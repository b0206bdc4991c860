// Cost of work on a stream as data, stated at its launch. Devices that compute ignore it; on the phantom device
// (phantom_device.hpp) work takes the time that a CostModel returns for it. Callable from any thread.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/names.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ranvier::runtime {

/// Kinds of work with similar rates; a profile has one entry for each.
enum class WorkKind {
  product,         ///< matrix multiplication; `shape` has its sizes
  attention,       ///< scores, softmax and weighted sums, forward or backward
  norm,            ///< LayerNorm, RMSNorm
  batch_norm,      ///< batch normalization of images
  activation,      ///< GELU, SwiGLU: a transcendental function per element
  dropout,         ///< counter-based random numbers
  rotary,          ///< rotary position embedding
  embedding,       ///< table lookups and their gradients
  cross_entropy,   ///< softmax and loss of logits
  patches,         ///< images to patches and back, pooling, pixels
  elementwise,     ///< copies, casts, additions, scaling, zeros, sums of columns and squares within device memory
  optimizer,       ///< AdamW, SGD, elementwise parts of Muon
  optimizer_int8,  ///< the same with moments in int8
  host_copy,       ///< between device and pinned memory
  samples,         ///< reading samples on the host
};
inline constexpr std::size_t work_kinds = static_cast<std::size_t>(WorkKind::samples) + 1;

/// Name in a profile's file: "product", "cross_entropy".
[[nodiscard]] inline std::string_view to_string(WorkKind kind) noexcept {
  return enum_name<WorkKind::samples>(
      kind, {"product", "attention", "norm", "batch_norm", "activation", "dropout", "rotary", "embedding",
             "cross_entropy", "patches", "elementwise", "optimizer", "optimizer_int8", "host_copy", "samples"});
}

/// C[m, n] += A[m, k] · B[k, n].
struct ProductShape {
  std::size_t m = 0, n = 0, k = 0;

  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

/// Direction of a host_copy. The link between a device and its host carries one copy at a time per direction.
enum class CopyDirection : std::uint8_t { none, to_device, to_host };

struct WorkCost {
  WorkKind kind = WorkKind::elementwise;
  DType dtype = DType::f32;                       ///< type of the operands
  double flops = 0;                               ///< operations that may take longer than the bytes
  double bytes = 0;                               ///< read and written, each array once
  ProductShape shape;                             ///< sizes of a matrix multiplication
  CopyDirection direction = CopyDirection::none;  ///< none: does not wait for the link
};

/// Cost of a matrix multiplication: 2mnk FLOPs; bytes of A, B and C, with C counted twice if it accumulates.
[[nodiscard]] inline WorkCost product_cost(const ProductShape& shape, DType dtype, DType to, bool accumulate) {
  const auto m = static_cast<double>(shape.m), n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  return {.kind = WorkKind::product,
          .dtype = dtype,
          .flops = 2 * m * n * k,
          .bytes = (m * k + k * n) * static_cast<double>(size_of(dtype)) +
                   m * n * static_cast<double>(size_of(to)) * (accumulate ? 2 : 1),
          .shape = shape};
}

/// Model of the duration of work on an otherwise idle device.
class CostModel {
 public:
  virtual ~CostModel() = default;
  [[nodiscard]] virtual Duration duration(const WorkCost& cost) const = 0;
};

// Rules for the cost of work (work_cost.hpp), so that rates mean the same for all kinds. Callable from any thread.
//
//   bytes  read and written, each array once, arrays changed in place twice; without workspaces and without
//          gaps inside an array. For host_copy: bytes over the link, once
//   flops  of matrix multiplications and attention; multiplication and addition count 2. Attention: pairs that the
//          causal mask and window allow, document masks ignored. It has two matrix multiplications forward and five
//          backward, of which MFU counts four. Optimizer: elements with stochastically rounded states (bf16); they
//          have one random number for all states
//   dtype  type of the operands read; f32 for plain copies of bytes

/// Cost of memory-bound work.
[[nodiscard]] inline WorkCost memory_cost(WorkKind kind, DType dtype, std::size_t bytes) {
  return {.kind = kind, .dtype = dtype, .bytes = static_cast<double>(bytes)};
}

[[nodiscard]] inline WorkCost elementwise_cost(std::size_t bytes, DType dtype = DType::f32) {
  return memory_cost(WorkKind::elementwise, dtype, bytes);
}

}  // namespace ranvier::runtime
