// CUDA's own types behind a device and its streams. Only .cu and _cuda.cpp files include this. Loop thread only,
// except check().
//
//   const cudaStream_t queue = cuda::native(stream);
//   cuda::launch("some kernel", queue, {blocks, threads}, some_kernel, ...);  // kernels/launch.cuh
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/device/stream.hpp"

#include <cuda_runtime_api.h>

#include <string>

namespace ranvier::runtime {

class Device;

namespace cuda {

/// CUDA stream behind `stream`. Makes its GPU the calling thread's current one.
[[nodiscard]] cudaStream_t native(StreamView stream);

/// GPU properties that determine launch grids and matrix multiplication algorithms; read from the driver once.
struct Properties {
  int ordinal = 0;
  int multiprocessors = 0;
  std::string name;  ///< GPU model: "NVIDIA H200"
};
[[nodiscard]] const Properties& properties(const Device& device);

/// Throws ErrorCode::device (or ErrorCode::memory) with the call, the GPU and a remedy. Callable from any thread.
void check(cudaError_t result, const char* call);

/// Checks a launch: throws if the GPU refuses the grid or the shared memory size. It does not wait; errors while the
/// kernel runs are reported by Device::on_failure.
void check_launch(const char* kernel);

}  // namespace cuda
}  // namespace ranvier::runtime
