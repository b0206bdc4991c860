#include "runtime/device/device.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"

#include <utility>

namespace ranvier::runtime {

const char* to_string(MemorySpace space) noexcept {
  return enum_name<MemorySpace::nvme>(space, {"device", "pinned", "host", "nvme"});
}

Stream::Stream(Device& device, std::string name, StreamWidth width)
    : owner_(device), name_(std::move(name)), width_(width) {
  if (!whole()) return;
  expect(!device.has_whole_stream_, "stream {}: the device has a stream of its whole width already", name_);
  device.has_whole_stream_ = true;
}

Stream::~Stream() {
  if (whole()) owner_.has_whole_stream_ = false;
}

std::unique_ptr<Device> Device::make_host_device(int threads) const {
  if (kind() == DeviceKind::inline_) return nullptr;
  return make_cpu_device({.threads = threads});
}

}  // namespace ranvier::runtime
