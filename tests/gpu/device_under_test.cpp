#include "tests/device_under_test.hpp"

#include <exception>

namespace ranvier::tests {

std::unique_ptr<runtime::Device> make_device(const runtime::CpuDeviceOptions& options) {
  return runtime::make_cuda_device({.budget_bytes = options.budget_bytes});
}

std::optional<std::string> missing_device() {
  try {
    (void)runtime::cuda_device_count();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace ranvier::tests
