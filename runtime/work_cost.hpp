// What a piece of work on a stream costs, as data: whoever launches work says so. A device that computes needs none of
// it; the phantom device (phantom_device.hpp) computes nothing, and the work takes the time that a CostModel gives it.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ranvier::runtime {

/// Work whose rates are alike: a profile has one entry for each.
enum class WorkKind {
  product,        ///< a matrix product; `shape` says of what
  attention,      ///< scores, softmax and weighted sums, forward or backward
  norm,           ///< LayerNorm, RMSNorm
  batch_norm,     ///< of images
  activation,     ///< GELU, SwiGLU: a transcendental function per element
  dropout,        ///< random numbers by counter
  rotary,         ///< rotary positions
  embedding,      ///< rows of a table looked up, or added to
  cross_entropy,  ///< softmax and loss of logits
  patches,        ///< images to patches and back, pools, pixels
  elementwise,    ///< copies, casts, additions, scaling, zeros, sums of columns and squares within device memory
  optimizer,      ///< AdamW
  host_copy,      ///< between device and pinned memory
  samples,        ///< the host reads samples
};
inline constexpr std::size_t work_kinds = static_cast<std::size_t>(WorkKind::samples) + 1;

/// As in a profile's file: "product", "cross_entropy".
[[nodiscard]] std::string_view to_string(WorkKind kind) noexcept;

/// C[m, n] += A[m, k] · B[k, n].
struct ProductShape {
  std::size_t m = 0, n = 0, k = 0;

  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

/// Of a host_copy. The link between a device and its host carries one copy at a time each way.
enum class CopyDirection : std::uint8_t { none, to_device, to_host };

struct WorkCost {
  WorkKind kind = WorkKind::elementwise;
  DType dtype = DType::f32;  ///< of the operands
  double flops = 0;  ///< multiplications and additions that are done; attention: of the pairs that its mask leaves
  double bytes = 0;  ///< read and written, each array once
  ProductShape shape;                             ///< of a product
  CopyDirection direction = CopyDirection::none;  ///< none: it does not wait for the link
};

/// 2mnk flops; bytes of A, B and C, C also read where it is added to.
[[nodiscard]] WorkCost product_cost(const ProductShape& shape, DType dtype, DType to, bool accumulate);

/// How long work takes where nothing else runs on the device.
class CostModel {
 public:
  virtual ~CostModel() = default;
  [[nodiscard]] virtual Duration duration(const WorkCost& cost) const = 0;
};

}  // namespace ranvier::runtime
