// Flag --device of all computing programs: "cpu", "inline", "cuda" or "cuda:N"; default of --precision on a device.
// Callable from any thread.
#pragma once

#include "apps/program/options.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/machine/machine_profile.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <memory>
#include <optional>

namespace ranvier::apps {

enum class DeviceFlag { cpu, inline_, cuda };

/// Binding of --device; `gpu` is the N of cuda:N. Refuses devices that this build lacks.
[[nodiscard]] OptionBinding device_flag(DeviceFlag& device, std::optional<int>& gpu);

/// Device of the flag. Throws if there is no GPU.
[[nodiscard]] std::unique_ptr<runtime::Device> make_device(DeviceFlag device, const runtime::CudaDeviceOptions& gpu,
                                                           const runtime::CpuDeviceOptions& cpu);

/// GPU of this rank: the named one, or the machine's GPUs in turn.
[[nodiscard]] runtime::CudaDeviceOptions gpu_of_rank(const runtime::MpiSession& session, std::optional<int> gpu);

/// Bytes that this rank may plan on its GPU: free memory, at most `asked`. Throws if there is no GPU.
[[nodiscard]] std::size_t device_budget(const runtime::MpiSession& session, std::optional<int> gpu,
                                        std::optional<std::size_t> asked);

/// Rule for the help text of --precision.
inline constexpr const char* default_precision_text =
    "fp32 on a CPU; on a GPU bf16, or fp16 before compute capability 8.0";

/// Rule: fp32 on a CPU; on a GPU bf16 if supported, otherwise fp16.
[[nodiscard]] constexpr runtime::DType default_precision(bool gpu, bool has_bf16) {
  if (!gpu) return runtime::DType::f32;
  return has_bf16 ? runtime::DType::bf16 : runtime::DType::f16;
}

/// True if the GPU has bf16 tensor cores (compute capability 8.0 or later).
[[nodiscard]] inline bool has_bf16(const runtime::CudaGpu& gpu) { return gpu.compute_capability >= 80; }

/// Default for machines of a profile. A GPU supports bf16 if the profile has a bf16 rate.
[[nodiscard]] runtime::DType default_precision(const runtime::MachineProfile& profile);

/// Default for the device of this process or rank. An unavailable GPU, as in a dry run on a machine without
/// GPUs, counts as one with bf16.
[[nodiscard]] runtime::DType default_precision(DeviceFlag device, std::optional<int> gpu,
                                               const runtime::MpiSession* rank = nullptr);

}  // namespace ranvier::apps
