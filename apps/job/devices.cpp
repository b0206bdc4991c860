#include "apps/job/devices.hpp"

#include "runtime/device/cuda_build.hpp"

#include <utility>

namespace ranvier::apps {

namespace {

std::unique_ptr<runtime::Device> make_compute_device(const RankRun& run, int threads) {
  const DeviceOptions& options = run.options.device;
  if constexpr (runtime::with_cuda) {
    if (options.device == DeviceFlag::cuda) {
      runtime::CudaDeviceOptions gpu = gpu_of_rank(run.session, options.gpu);
      gpu.budget_bytes = options.memory_bytes;
      gpu.graphs = options.cuda_graphs;
      return runtime::make_cuda_device(gpu);
    }
  }
  const runtime::CpuDeviceOptions cpu{.threads = threads, .budget_bytes = options.memory_bytes};
  return options.device == DeviceFlag::inline_ ? runtime::make_inline_device(cpu) : runtime::make_cpu_device(cpu);
}

}  // namespace

int device_threads(const TrainOptions& options, const runtime::MpiSession& session) {
  if (options.device.device == DeviceFlag::cuda) return 1;
  if (options.device.threads > 0) return options.device.threads;
  return session.cores();
}

Devices make_devices(const RankRun& run, int threads) {
  Devices devices{.compute = make_compute_device(run, threads), .host = runtime::make_cpu_device({.threads = 1})};
  for (runtime::Device* device : {devices.compute.get(), devices.host.get()})
    device->on_failure([&loop = run.loop](std::exception_ptr error) { loop.stop(std::move(error)); });
  return devices;
}

void close_memory(runtime::Device& device, runtime::MemorySpace space) {
  if constexpr (runtime::with_cuda) {
    if (device.kind() == runtime::DeviceKind::cuda) runtime::close_cuda_memory(device, space);
  }
}

}  // namespace ranvier::apps
