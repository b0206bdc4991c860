// The device that kernels are tested on. The same test bodies make two programs: one with the device `inline`, one with
// `cuda`, which is skipped with a message if there is no GPU.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::tests {

/// A GPU ignores `options.threads`.
[[nodiscard]] std::unique_ptr<runtime::Device> make_device(const runtime::CpuDeviceOptions& options = {});

/// Reason, in words, why the device is unavailable; nullopt if it is available.
[[nodiscard]] std::optional<std::string> missing_device();

/// An array in device memory, initialized from a host array.
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

  /// Contents of the array after all work on the stream.
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

/// The device with a stream of its whole width.
struct Bench {
  explicit Bench(int threads = 1) : device(make_device({.threads = threads})) {}

  template <typename T>
  [[nodiscard]] OnDevice<T> place(const std::vector<T>& values) const {
    return {*stream, values};
  }

  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<runtime::Stream> stream = device->make_stream("test", runtime::StreamWidth::whole);
};

}  // namespace ranvier::tests
