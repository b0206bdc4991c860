// Runs a test body on each kind of device that needs no GPU, with one thread and with more threads than divide
// the work evenly.
#pragma once

#include "runtime/device.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>

namespace ranvier::models {

/// Calls body(stream) for each; the body synchronises.
template <typename Body>
void on_every_device(Body body) {
  for (const int threads : {1, 2, 3}) {
    for (const bool at_once : {true, false}) {
      const runtime::CpuDeviceOptions options{.threads = threads};
      const auto device = at_once ? runtime::make_inline_device(options) : runtime::make_cpu_device(options);
      const std::string description = device->description();
      CAPTURE(description);
      const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
      body(runtime::StreamView(*stream));
    }
  }
}

}  // namespace ranvier::models
