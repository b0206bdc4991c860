// CUDA's own side of a device, its streams and its calls. Only .cu and _cuda.cpp files include this.
//
//   const cudaStream_t queue = cuda::native(stream);
//   cuda::launch("some kernel", queue, {blocks, threads}, some_kernel, ...);  // kernels/launch.cuh
//
// Loop thread only, but for check.
#pragma once

#include "runtime/error.hpp"
#include "runtime/stream.hpp"

#include <cuda_runtime_api.h>

#include <string>

namespace ranvier::runtime {

class Device;

namespace cuda {

/// The queue behind `stream`, whose GPU becomes the calling thread's current one.
[[nodiscard]] cudaStream_t native(StreamView stream);

/// What kernels choose their grids by, and products their algorithms; asked of the driver once.
struct Properties {
  int ordinal = 0;
  int multiprocessors = 0;
  std::string name;  ///< of the kind of GPU: "NVIDIA H200"
};
[[nodiscard]] const Properties& properties(const Device& device);

/// Throws ErrorCode::device (ErrorCode::memory for memory) with the call, the GPU and what may help. Any thread.
void check(cudaError_t result, const char* call);

/// After a kernel's launch: a grid or an amount of shared memory that the GPU refuses. It waits for nothing, so what
/// goes wrong while the kernel runs comes by Device::on_failure.
void check_launch(const char* kernel);

}  // namespace cuda
}  // namespace ranvier::runtime
