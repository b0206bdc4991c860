// The precision that programs compute in without --precision. Any thread.
#pragma once

#include "apps/program/device_flag.hpp"
#include "runtime/cuda_gpu.hpp"
#include "runtime/dtype.hpp"
#include "runtime/machine_profile.hpp"

#include <optional>

namespace ranvier::apps {

/// The rule in the help text of --precision.
inline constexpr const char* default_precision_text =
    "fp32 on a CPU; on a GPU bf16, or fp16 before compute capability 8.0";

/// The rule: fp32 on a CPU; on a GPU bf16 if it has that, else fp16.
[[nodiscard]] constexpr runtime::DType default_precision(bool gpu, bool has_bf16) {
  if (!gpu) return runtime::DType::f32;
  return has_bf16 ? runtime::DType::bf16 : runtime::DType::f16;
}

/// Whether the GPU multiplies bf16 on its tensor cores: from compute capability 8.0 on.
[[nodiscard]] inline bool has_bf16(const runtime::CudaGpu& gpu) { return gpu.compute_capability >= 80; }

/// For machines of a profile. A GPU has bf16 if its profile has a rate of it.
[[nodiscard]] runtime::DType default_precision(const runtime::MachineProfile& profile);

/// For the device of this process, or of a rank (device_flag.hpp). A GPU that cannot be asked, as for a dry run on a
/// machine without GPUs, counts as one with bf16.
[[nodiscard]] runtime::DType default_precision(DeviceFlag device, std::optional<int> gpu,
                                               const runtime::MpiSession* rank = nullptr);

}  // namespace ranvier::apps
