// A device that records the cost of work on its streams and refuses work without a cost, like a phantom device, but
// does the work.
#pragma once

#include "runtime/base/error.hpp"
#include "tests/doubles/forwarding.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

class RecordingDevice final : public ForwardingDevice {
 public:
  struct Work {
    std::string stream;
    runtime::WorkCost cost;
  };

  /// `near` runs work where it is launched (`inline`) and provides streams and events. `apart`: Device::apart().
  explicit RecordingDevice(std::unique_ptr<runtime::Device> near = runtime::make_inline_device(),
                           bool apart = false)
      : ForwardingDevice(std::move(near)), apart_(apart) {}

  /// Work launched since the last clear(), in order.
  [[nodiscard]] const std::vector<Work>& work() const noexcept { return work_; }
  void clear() noexcept { work_.clear(); }

  bool apart() const noexcept override { return apart_; }
  std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth width) override {
    return std::make_unique<RecordingStream>(*this, ForwardingDevice::make_stream(std::move(name), width));
  }

 private:
  class RecordingStream final : public ForwardingStream {
   public:
    RecordingStream(RecordingDevice& device, std::unique_ptr<runtime::Stream> near)
        : ForwardingStream(device, std::move(near)), device_(&device) {}
    void launch(Work) override { fail(ErrorCode::internal, "stream {}: work without a cost", name()); }
    void launch(const runtime::WorkCost& cost, Work work) override {
      device_->work_.push_back({name(), cost});
      inner().launch(std::move(work));
    }

   private:
    RecordingDevice* device_;
  };

  bool apart_;
  std::vector<Work> work_;
};

}  // namespace ranvier::tests
