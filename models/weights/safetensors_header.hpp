// Header of a safetensors file (safetensors.hpp): its tensors and their offsets. Any thread.
#pragma once

#include "runtime/base/dtype.hpp"

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

/// Tensor dtypes by name; fp32 if missing.
using TensorTypes = std::map<std::string, runtime::DType, std::less<>>;

/// Everything before the values of the first tensor; the tensors follow in order without gaps.
[[nodiscard]] std::string safetensors_header(std::span<const TensorToStore> tensors);

}  // namespace ranvier::models
