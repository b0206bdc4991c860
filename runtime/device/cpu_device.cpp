// Devices on the CPU: asynchronous (`cpu`) and at once on the caller (`inline`).
#include "runtime/base/error.hpp"
#include "runtime/device/cpu_memory.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/ordered_worker.hpp"
#include "runtime/host/compute_pool.hpp"

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

namespace ranvier::runtime {
namespace {

/// Memory with a budget, a thread pool for one wide stream, and the first failure.
class ProcessorDevice : public Device {
 public:
  ProcessorDevice(const char* name, const CpuDeviceOptions& options)
      : name_(name), memory_(options.budget_bytes), pool_(options.threads) {}

  [[nodiscard]] std::string description() const final {
    return fmt::format("{}, {} thread{}", name_, threads(), threads() == 1 ? "" : "s");
  }
  [[nodiscard]] int threads() const noexcept final { return pool_.threads(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept final { return memory_.used_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept final { return memory_.budget_bytes(); }
  [[nodiscard]] Buffer allocate(std::size_t bytes, MemorySpace space) final {
    return memory_.allocate(bytes, space);
  }

 private:
  friend class ProcessorStream;

  const char* const name_;
  CpuMemory memory_;
  ComputePool pool_;
};

/// Works on the device's pool if wide, else on a single thread.
class ProcessorStream : public Stream {
 public:
  ProcessorStream(ProcessorDevice& device, std::string name, StreamWidth width)
      : Stream(device, std::move(name), width), device_(device) {}

 protected:
  void run(const Work& work) {
    try {
      work(whole() ? device_.pool_ : alone_);
    } catch (...) {
      device_.failure_.set(std::current_exception());
    }
    count_done();
  }
  [[nodiscard]] const FailureLatch& failure() const noexcept { return device_.failure_; }

 private:
  ProcessorDevice& device_;
  ComputePool alone_{1};
};

class InlineEvent final : public Event {
 public:
  void record(StreamView stream) override {
    expect(stream.device().kind() == DeviceKind::inline_,
           "an event of an inline device is recorded on stream {} of another kind of device", stream.name());
  }
  [[nodiscard]] bool reached() const override { return true; }
};

class InlineStream final : public ProcessorStream {
 public:
  using ProcessorStream::ProcessorStream;

  void launch(Work work) override {
    if (!failure().is_set()) run(work);
  }
  void wait(const Event& event) override {
    expect(dynamic_cast<const InlineEvent*>(&event) != nullptr,
           "stream {} waits for an event of another kind of device", name());
  }
  void synchronize() override { failure().rethrow_if_set(); }
};

/// Position in a stream's queue, passed or not.
class Point {
 public:
  void pass() {
    passed_.store(1, std::memory_order_release);
    passed_.notify_all();
  }
  void await() const { passed_.wait(0, std::memory_order_acquire); }
  [[nodiscard]] bool passed() const noexcept { return passed_.load(std::memory_order_acquire) != 0; }

 private:
  std::atomic<int> passed_{0};
};

class CpuEvent final : public Event {
 public:
  void record(StreamView stream) override;
  [[nodiscard]] bool reached() const override {
    const auto last = point();
    return !last || last->passed();
  }

  /// Point of the last record. Each record has its own, so that its waiters are not woken by the next one.
  [[nodiscard]] std::shared_ptr<const Point> point() const {
    const std::lock_guard lock(mutex_);
    return point_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Point> point_;
};

class CpuStream final : public ProcessorStream {
 public:
  using ProcessorStream::ProcessorStream;

  void launch(Work work) override { worker_.push({std::move(work), false}); }

  void wait(const Event& event) override {
    const auto* of_cpu = dynamic_cast<const CpuEvent*>(&event);
    expect(of_cpu != nullptr, "stream {} waits for an event of another kind of device", name());
    if (auto point = of_cpu->point(); point && !point->passed())
      worker_.push({[point = std::move(point)](ComputePool&) { point->await(); }, true});
  }

  void synchronize() override {
    mark()->await();
    failure().rethrow_if_set();
  }

  /// Point behind all work queued so far; it is passed after a failure, too.
  std::shared_ptr<const Point> mark() {
    auto point = std::make_shared<Point>();
    worker_.push({[point](ComputePool&) { point->pass(); }, true});
    return point;
  }

 private:
  struct Item {
    Work work;
    bool after_failure = false;  // also runs after a failure, so that no caller waits forever
  };

  OrderedWorker<Item> worker_{name(), [this](Item& item) noexcept {
                                if (!failure().is_set() || item.after_failure) run(item.work);
                              }};  // last: its thread uses the others and the base, to the end of the queue
};

void CpuEvent::record(StreamView stream) {
  auto* of_cpu = dynamic_cast<CpuStream*>(&stream.stream());
  expect(of_cpu != nullptr, "an event of a cpu device is recorded on stream {} of another kind of device",
         stream.name());
  auto point = of_cpu->mark();
  const std::lock_guard lock(mutex_);
  point_ = std::move(point);
}

template <DeviceKind device_kind, class OwnStream, class OwnEvent>
class HostDevice final : public ProcessorDevice {
 public:
  using ProcessorDevice::ProcessorDevice;

  [[nodiscard]] DeviceKind kind() const noexcept override { return device_kind; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) override {
    return std::make_unique<OwnStream>(*this, std::move(name), width);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<OwnEvent>(); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  return std::make_unique<HostDevice<DeviceKind::cpu, CpuStream, CpuEvent>>("cpu", options);
}

std::unique_ptr<Device> make_inline_device(const CpuDeviceOptions& options) {
  return std::make_unique<HostDevice<DeviceKind::inline_, InlineStream, InlineEvent>>("inline", options);
}

}  // namespace ranvier::runtime
