#include "apps/job/devices.hpp"

#include "runtime/device/cuda_build.hpp"

#include <utility>

namespace ranvier::apps {

int device_threads(const TrainOptions& options, const runtime::MpiSession& session) {
  if (options.device.device == DeviceFlag::cuda) return 1;
  if (options.device.threads > 0) return options.device.threads;
  return session.cores();
}

Devices make_devices(const RankRun& run, int threads) {
  const DeviceOptions& options = run.options.device;
  const bool on_gpu = options.device == DeviceFlag::cuda;
  runtime::CudaDeviceOptions gpu = on_gpu ? gpu_of_rank(run.session, options.gpu) : runtime::CudaDeviceOptions();
  gpu.budget_bytes = options.memory_bytes;
  gpu.graphs = options.cuda_graphs;
  Devices devices{.compute = make_device(options.device, gpu, {threads, options.memory_bytes}),
                  .host = runtime::make_cpu_device({.threads = 1})};
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
