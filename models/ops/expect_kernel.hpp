// What every operation asks before it launches.
#pragma once

#include "runtime/device.hpp"
#include "runtime/dtype.hpp"
#include "runtime/error.hpp"
#include "runtime/stream.hpp"

namespace ranvier::models {

/// Throws ErrorCode::internal unless `operation` has kernels for `dtype`.
inline void expect_kernel(runtime::DType dtype, const char* operation) {
  using runtime::DType;
  expect(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "{} of {}", operation,
         to_string(dtype));
}

/// Whether x_cuda is to compute (there are such streams only where runtime/cuda_build.hpp says with_cuda), not
/// x_cpu.
[[nodiscard]] inline bool on_gpu(runtime::StreamView stream) {
  return stream.device().kind() == runtime::DeviceKind::cuda;
}

}  // namespace ranvier::models
