#include "apps/program/default_precision.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"

namespace ranvier::apps {

using runtime::DType;

namespace {

bool asked_for_bf16(std::optional<int> gpu, const runtime::MpiSession* rank) {
  if constexpr (runtime::with_cuda) {
    try {
      const int ordinal = rank != nullptr ? gpu_of_rank(*rank, gpu).ordinal : gpu.value_or(0);
      return has_bf16(runtime::cuda_gpu(ordinal));
    } catch (const Error&) {  // the run reports this error when it creates the device
      return true;
    }
  }
  return true;
}

}  // namespace

DType default_precision(const runtime::MachineProfile& profile) {
  return default_precision(profile.gpu, profile.rates.contains(DType::bf16));
}

DType default_precision(DeviceFlag device, std::optional<int> gpu, const runtime::MpiSession* rank) {
  const bool on_gpu = device == DeviceFlag::cuda;
  return default_precision(on_gpu, on_gpu && asked_for_bf16(gpu, rank));
}

}  // namespace ranvier::apps
