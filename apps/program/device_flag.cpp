#include "apps/program/device_flag.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

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

OptionBinding device_flag(DeviceFlag& device, std::optional<int>& gpu) {
  const auto hosts = choice<DeviceFlag>(device, {{"cpu", DeviceFlag::cpu}, {"inline", DeviceFlag::inline_}});
  return {.read = [&device, &gpu, read = hosts.read](const std::string& given) -> std::optional<std::string> {
            gpu.reset();
            if (!given.starts_with("cuda")) {
              if (read(given)) return runtime::with_cuda ? "cpu, inline, cuda or cuda:N" : "cpu or inline";
              return {};
            }
            if (!runtime::with_cuda) return "cpu: this build has no CUDA device (-DRANVIER_CUDA=ON)";
            int number = 0;
            if (given != "cuda") {
              if (!given.starts_with("cuda:") || whole(number, 0, 1024).read(given.substr(5)))
                return "cuda or cuda:N";
              gpu = number;
            }
            device = DeviceFlag::cuda;
            return {};
          },
          .write =
              [&device, &gpu, write = hosts.write] {
                if (device != DeviceFlag::cuda) return write();
                return gpu ? fmt::format("cuda:{}", *gpu) : std::string("cuda");
              },
          .words = {"cpu", "inline", "cuda"}};
}

std::unique_ptr<runtime::Device> make_device(DeviceFlag device, const runtime::CudaDeviceOptions& gpu,
                                             const runtime::CpuDeviceOptions& cpu) {
  if constexpr (runtime::with_cuda) {
    if (device == DeviceFlag::cuda) return runtime::make_cuda_device(gpu);
  }
  return device == DeviceFlag::inline_ ? runtime::make_inline_device(cpu) : runtime::make_cpu_device(cpu);
}

runtime::CudaDeviceOptions gpu_of_rank(const runtime::MpiSession& session, std::optional<int> gpu) {
  if constexpr (runtime::with_cuda) {
    if (gpu) return {.ordinal = *gpu, .sharers = session.local_ranks()};
    const int gpus = runtime::cuda_device_count();
    return {.ordinal = session.local_rank() % gpus, .sharers = runtime::ceil_divide(session.local_ranks(), gpus)};
  }
  return {};
}

std::size_t device_budget(const runtime::MpiSession& session, std::optional<int> gpu,
                          std::optional<std::size_t> asked) {
  if constexpr (runtime::with_cuda) {
    const std::size_t free = runtime::make_cuda_device(gpu_of_rank(session, gpu))->budget_bytes();
    return std::min(asked.value_or(free), free);
  }
  return asked.value_or(0);
}

DType default_precision(const runtime::MachineProfile& profile) {
  return default_precision(profile.gpu, profile.rates.contains(DType::bf16));
}

DType default_precision(DeviceFlag device, std::optional<int> gpu, const runtime::MpiSession* rank) {
  const bool on_gpu = device == DeviceFlag::cuda;
  return default_precision(on_gpu, on_gpu && asked_for_bf16(gpu, rank));
}

}  // namespace ranvier::apps
