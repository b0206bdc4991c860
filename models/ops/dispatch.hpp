// Checks of an operation before it launches, and the choice of its kernel's device.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/device/work_cost.hpp"

#include <cstddef>

namespace ranvier::models {

/// Throws ErrorCode::internal unless `operation` has kernels for `dtype`.
inline void expect_kernel(runtime::DType dtype, const char* operation) {
  using runtime::DType;
  expect(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "{} of {}", operation,
         to_string(dtype));
}

/// Whether x_cuda computes, instead of x_cpu. Always false unless with_cuda is true (runtime/device/cuda_build.hpp).
[[nodiscard]] inline bool on_gpu(runtime::StreamView stream) {
  return stream.device().kind() == runtime::DeviceKind::cuda;
}

/// Bytes of n elements.
[[nodiscard]] inline std::size_t bytes_of(std::size_t n, runtime::DType dtype) { return n * size_of(dtype); }

/// Runs the kernel of the stream's device: `cpu` as work of this cost, or `cuda`, which queues its own
/// work.
template <auto cpu, auto cuda, typename... Arguments>
void on_device(runtime::StreamView stream, const runtime::WorkCost& cost, const Arguments&... arguments) {
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return cuda(stream, arguments...);
  }
  stream.launch(cost, [=](runtime::ComputePool& pool) { cpu(pool, arguments...); });
}

}  // namespace ranvier::models
