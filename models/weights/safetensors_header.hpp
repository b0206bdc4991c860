// How a safetensors file begins (safetensors.hpp): what its tensors are and where they lie. Any thread.
#pragma once

#include "runtime/dtype.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

struct TensorToStore {
  std::string name;
  runtime::DType dtype = runtime::DType::f32;  ///< f32, bf16 or f16
  std::vector<std::size_t> shape;

  [[nodiscard]] std::size_t elements() const;
  [[nodiscard]] std::size_t bytes() const { return elements() * runtime::size_of(dtype); }
};

/// Types of tensors by name; a tensor without an entry is fp32.
using TensorTypes = std::map<std::string, runtime::DType, std::less<>>;

/// All that comes before the values of the first tensor, whose bytes the others' follow in order.
[[nodiscard]] std::string safetensors_header(std::span<const TensorToStore> tensors);

}  // namespace ranvier::models
