#include "runtime/compute_pool.hpp"
#include "runtime/cpu_memory.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"
#include "runtime/failure_latch.hpp"

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

class InlineDevice final : public Device {
 public:
  explicit InlineDevice(const CpuDeviceOptions& options) : memory_(options.budget_bytes), pool_(options.threads) {}

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::inline_; }
  [[nodiscard]] std::string description() const override {
    return fmt::format("inline, {} thread{}", threads(), threads() == 1 ? "" : "s");
  }
  [[nodiscard]] int threads() const noexcept override { return pool_.threads(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept override { return memory_.used_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept override { return memory_.budget_bytes(); }
  [[nodiscard]] Buffer allocate(std::size_t bytes, MemorySpace space) override {
    return memory_.allocate(bytes, space);
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) override;
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<InlineEvent>(); }
  void on_failure(std::function<void(std::exception_ptr)> handler) override {
    failure_.on_failure(std::move(handler));
  }

 private:
  friend class InlineStream;

  CpuMemory memory_;
  ComputePool pool_;
  FailureLatch failure_;
  bool whole_taken_ = false;
};

class InlineStream final : public Stream {
 public:
  InlineStream(InlineDevice& device, std::string name, StreamWidth width)
      : device_(device), name_(std::move(name)), width_(width) {
    if (width == StreamWidth::whole) {
      expect(!device.whole_taken_, "stream {}: the device has a stream of its whole width already", name_);
      device.whole_taken_ = true;
    }
  }
  ~InlineStream() override {
    if (width_ == StreamWidth::whole) device_.whole_taken_ = false;
  }

  [[nodiscard]] Device& device() const noexcept override { return device_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }

  void launch(Work work) override {
    if (device_.failure_.is_set()) return;
    try {
      work(width_ == StreamWidth::whole ? device_.pool_ : alone_);
    } catch (...) {
      device_.failure_.set(std::current_exception());
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
  void synchronize() override { device_.failure_.rethrow_if_set(); }

 private:
  InlineDevice& device_;
  const std::string name_;
  const StreamWidth width_;
  ComputePool alone_{1};
};

std::unique_ptr<Stream> InlineDevice::make_stream(std::string name, StreamWidth width) {
  return std::make_unique<InlineStream>(*this, std::move(name), width);
}

}  // namespace

std::unique_ptr<Device> make_inline_device(const CpuDeviceOptions& options) {
  return std::make_unique<InlineDevice>(options);
}

}  // namespace ranvier::runtime
