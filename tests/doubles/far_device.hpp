// A host device whose device memory is declared inaccessible to the host, like a GPU's. It tests transfers through
// pinned memory without a GPU.
#pragma once

#include "runtime/base/error.hpp"
#include "tests/doubles/forwarding.hpp"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

class FarDevice final : public ForwardingDevice {
 public:
  /// `near` provides streams and events.
  explicit FarDevice(std::unique_ptr<runtime::Device> near) : ForwardingDevice(std::move(near)) {}

  runtime::Buffer allocate(std::size_t bytes, runtime::MemorySpace space) override {
    expect(closed_.count(space) == 0, "{} bytes of {} memory were requested after allocation was closed", bytes,
           runtime::to_string(space));
    auto buffer = ForwardingDevice::allocate(bytes, space);
    if (space == runtime::MemorySpace::device) far_.emplace_back(buffer.data(), bytes);
    return buffer;
  }
  /// As a run on a GPU closes it (runtime/device/cuda_build.hpp).
  void close(runtime::MemorySpace space) { closed_.insert(space); }
  bool host_reaches(const void* address) const override {
    for (const auto& [begin, bytes] : far_) {
      if (address >= begin && address < begin + bytes) return false;
    }
    return true;
  }
  std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth width) override {
    return std::make_unique<ForwardingStream>(*this, ForwardingDevice::make_stream(std::move(name), width));
  }

 private:
  std::set<runtime::MemorySpace> closed_;
  std::vector<std::pair<const std::byte*, std::size_t>> far_;  // buffers of a test live as long as this device
};

}  // namespace ranvier::tests
