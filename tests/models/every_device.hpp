// Runs a test body on each device of the program (tests/device_under_test.hpp). On the CPU: with one thread and with
// more threads than divide the work evenly, inline and asynchronously.
#pragma once

#include "runtime/device/device.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

/// Whether the program is for a GPU, whose functions are less accurate than the CPU's here: by a unit or two.
inline bool on_gpu_here() {
  static const bool gpu = tests::make_device()->kind() == runtime::DeviceKind::cuda;
  return gpu;
}

/// Calls body(stream) for each device; the body synchronizes.
template <typename Body>
void on_every_device(Body body) {
  const auto run = [&](std::unique_ptr<runtime::Device> device) {
    const std::string description = device->description();
    CAPTURE(description);
    const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
    body(runtime::StreamView(*stream));
  };
  if (on_gpu_here()) return run(tests::make_device());
  for (const int threads : {1, 2, 3}) {
    const runtime::CpuDeviceOptions options{.threads = threads};
    run(runtime::make_inline_device(options));
    run(runtime::make_cpu_device(options));
  }
}

/// The same once, with one thread.
template <typename Body>
void on_one_device(Body body) {
  const auto device = tests::make_device();
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  body(runtime::StreamView(*stream));
}

}  // namespace ranvier::models
