// What kernels are tested on. The same test bodies make two programs: in one the device is `inline`, in the other
// `cuda`, which says that it was skipped where no GPU is.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::tests {

/// `options.threads` means nothing to a GPU.
[[nodiscard]] std::unique_ptr<runtime::Device> make_device(const runtime::CpuDeviceOptions& options = {});

/// Why there is no such device here, for people; none: there is one.
[[nodiscard]] std::optional<std::string> missing_device();

/// An array in the device's memory, a copy of one of the host's.
template <typename T>
class OnDevice {
 public:
  OnDevice(runtime::Stream& stream, const std::vector<T>& values)
      : stream_(&stream),
        elements_(values.size()),
        buffer_(stream.device().allocate(values.size() * sizeof(T), runtime::MemorySpace::device)) {
    runtime::copy(stream, buffer_.data(), values.data(), buffer_.bytes());
    stream.synchronize();
  }

  [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(buffer_.data()); }

  /// What the array holds after all work on the stream.
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(elements_);
    runtime::copy(*stream_, values.data(), buffer_.data(), buffer_.bytes());
    stream_->synchronize();
    return values;
  }

 private:
  runtime::Stream* stream_;
  std::size_t elements_;
  runtime::Buffer buffer_;
};

}  // namespace ranvier::tests
