#include "tests/device_under_test.hpp"

namespace ranvier::tests {

std::unique_ptr<runtime::Device> make_device(const runtime::CpuDeviceOptions& options) {
  return runtime::make_inline_device(options);
}

std::optional<std::string> missing_device() { return std::nullopt; }

}  // namespace ranvier::tests
