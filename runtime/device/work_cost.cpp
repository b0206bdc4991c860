#include "runtime/device/work_cost.hpp"

namespace ranvier::runtime {

std::string_view to_string(WorkKind kind) noexcept {
  switch (kind) {
    case WorkKind::product:
      return "product";
    case WorkKind::attention:
      return "attention";
    case WorkKind::norm:
      return "norm";
    case WorkKind::batch_norm:
      return "batch_norm";
    case WorkKind::activation:
      return "activation";
    case WorkKind::dropout:
      return "dropout";
    case WorkKind::rotary:
      return "rotary";
    case WorkKind::embedding:
      return "embedding";
    case WorkKind::cross_entropy:
      return "cross_entropy";
    case WorkKind::patches:
      return "patches";
    case WorkKind::elementwise:
      return "elementwise";
    case WorkKind::optimizer:
      return "optimizer";
    case WorkKind::host_copy:
      return "host_copy";
    case WorkKind::samples:
      return "samples";
  }
  return "?";
}

WorkCost product_cost(const ProductShape& shape, DType dtype, DType to, bool accumulate) {
  const auto m = static_cast<double>(shape.m), n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  return {.kind = WorkKind::product,
          .dtype = dtype,
          .flops = 2 * m * n * k,
          .bytes = (m * k + k * n) * static_cast<double>(size_of(dtype)) +
                   m * n * static_cast<double>(size_of(to)) * (accumulate ? 2 : 1),
          .shape = shape};
}

}  // namespace ranvier::runtime
