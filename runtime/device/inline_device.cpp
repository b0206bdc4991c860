#include "runtime/base/error.hpp"
#include "runtime/device/processor_device.hpp"

#include <utility>

namespace ranvier::runtime {
namespace {

class InlineEvent final : public Event {
 public:
  void record(StreamView stream) override {
    expect(stream.device().kind() == DeviceKind::inline_,
           "an event of an inline device is recorded on stream {} of another kind of device", stream.name());
  }
  [[nodiscard]] bool reached() const override { return true; }
};

class InlineDevice final : public ProcessorDevice {
 public:
  explicit InlineDevice(const CpuDeviceOptions& options) : ProcessorDevice("inline", options) {}

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::inline_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) override;
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<InlineEvent>(); }
};

class InlineStream final : public Stream {
 public:
  InlineStream(InlineDevice& device, std::string name, StreamWidth width)
      : device_(device), name_(std::move(name)), pool_(device, name_, width) {}

  [[nodiscard]] Device& device() const noexcept override { return device_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }

  void launch(Work work) override {
    if (device_.failure().is_set()) return;
    try {
      work(pool_.get());
    } catch (...) {
      device_.failure().set(std::current_exception());
    }
    count_done();
  }
  void call_back(std::function<void()> function) override {
    launch([&](ComputePool&) { function(); });
  }
  void wait(const Event& event) override {
    expect(dynamic_cast<const InlineEvent*>(&event) != nullptr,
           "stream {} waits for an event of another kind of device", name_);
  }
  void synchronize() override { device_.failure().rethrow_if_set(); }

 private:
  InlineDevice& device_;
  const std::string name_;
  StreamPool pool_;
};

std::unique_ptr<Stream> InlineDevice::make_stream(std::string name, StreamWidth width) {
  return std::make_unique<InlineStream>(*this, std::move(name), width);
}

}  // namespace

std::unique_ptr<Device> make_inline_device(const CpuDeviceOptions& options) {
  return std::make_unique<InlineDevice>(options);
}

}  // namespace ranvier::runtime
