// Whether this build has CUDA and NCCL; choice of a kernel's device; properties and memory of GPUs. Dispatch reads
//
//   if (ran_on_gpu<x_cuda>(stream, ...)) return;
//
// and links without x_cuda if CUDA is not built, since a discarded statement uses nothing.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <string>

namespace ranvier::runtime {

inline constexpr bool with_cuda = RANVIER_WITH_CUDA;
inline constexpr bool with_nccl = RANVIER_WITH_NCCL;

/// Whether x_cuda computes, instead of x_cpu. Always false unless with_cuda is true.
[[nodiscard]] inline bool on_gpu(StreamView stream) { return stream.device().kind() == DeviceKind::cuda; }

/// Queues the kernel `cuda` if the stream is a GPU's; false: the caller launches the CPU's kernel.
template <auto cuda, typename... Arguments>
[[nodiscard]] bool ran_on_gpu(StreamView stream, const Arguments&... arguments) {
  if constexpr (with_cuda) {
    if (on_gpu(stream)) return cuda(stream, arguments...), true;
  }
  return false;
}

/// Properties of a GPU, read from its driver before a device is made. Declared in every build and defined if with_cuda
/// is true (cuda_build.hpp). Callable from any thread.
struct CudaGpu {
  std::string name;            ///< model, such as "NVIDIA A100-SXM4-40GB"
  int compute_capability = 0;  ///< times ten: 80 is 8.0
};

/// Throws ErrorCode::device if no GPU has this number.
[[nodiscard]] CudaGpu cuda_gpu(int ordinal);

// GPU memory outside the budget of a `cuda` device (device.hpp). Declared in every build and defined if with_cuda is
// true (cuda_build.hpp). Callable from any thread unless stated otherwise.

/// Bytes reserved per process outside the budget: the driver's context, code, and the libraries' own buffers.
inline constexpr std::size_t cuda_reserve_bytes = std::size_t{1} << 30;

/// Makes Device::allocate() of a `cuda` device throw ErrorCode::internal for this space from now on. Above all for
/// pinned memory: a system may delay pinning until the GPU is idle, but an NCCL kernel may be waiting for a peer that
/// waits for this rank. Loop thread only.
void close_cuda_memory(Device& device, MemorySpace space);

/// Free bytes of the GPU behind a `cuda` device, other processes' memory excluded.
[[nodiscard]] std::size_t cuda_free_bytes(const Device& device);

}  // namespace ranvier::runtime
