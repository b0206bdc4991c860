// What every operation checks before it launches.
#pragma once

#include "runtime/device.hpp"
#include "runtime/dtype.hpp"
#include "runtime/error.hpp"
#include "runtime/stream.hpp"

namespace ranvier::models {

/// Throws ErrorCode::internal unless `operation` has a kernel for the stream's device and for `dtype`.
inline void expect_kernel(runtime::StreamView stream, runtime::DType dtype, const char* operation) {
  using runtime::DType;
  expect(stream.device().kind() != runtime::DeviceKind::cuda, "{} has no kernel for this device", operation);
  expect(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "{} of {}", operation,
         to_string(dtype));
}

}  // namespace ranvier::models
