#include "runtime/base/error.hpp"
#include "runtime/device/ordered_worker.hpp"
#include "runtime/device/processor_device.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace ranvier::runtime {
namespace {

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

class CpuStream;

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

class CpuDevice final : public ProcessorDevice {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options) : ProcessorDevice("cpu", options) {}

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cpu; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) override;
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
};

class CpuStream final : public Stream {
 public:
  CpuStream(CpuDevice& device, std::string name, StreamWidth width)
      : device_(device), name_(std::move(name)), pool_(device, name_, width) {}

  [[nodiscard]] Device& device() const noexcept override { return device_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }

  void launch(Work work) override { worker_.push({std::move(work), false}); }

  void call_back(std::function<void()> function) override {
    worker_.push({[function = std::move(function)](ComputePool&) { function(); }, false});
  }

  void wait(const Event& event) override {
    const auto* of_cpu = dynamic_cast<const CpuEvent*>(&event);
    expect(of_cpu != nullptr, "stream {} waits for an event of another kind of device", name_);
    if (auto point = of_cpu->point(); point && !point->passed())
      worker_.push({[point = std::move(point)](ComputePool&) { point->await(); }, true});
  }

  void synchronize() override {
    mark()->await();
    device_.failure().rethrow_if_set();
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

  void handle(Item& item) noexcept {
    if (device_.failure().is_set() && !item.after_failure) return;
    try {
      item.work(pool_.get());
    } catch (...) {
      device_.failure().set(std::current_exception());
    }
    count_done();
  }

  CpuDevice& device_;
  const std::string name_;
  StreamPool pool_;
  OrderedWorker<Item> worker_{
      name_, [this](Item& item) { handle(item); }};  // last: its thread uses the others, to the end of the queue
};

void CpuEvent::record(StreamView stream) {
  auto* of_cpu = dynamic_cast<CpuStream*>(&stream.stream());
  expect(of_cpu != nullptr, "an event of a cpu device is recorded on stream {} of another kind of device",
         stream.name());
  auto point = of_cpu->mark();
  const std::lock_guard lock(mutex_);
  point_ = std::move(point);
}

std::unique_ptr<Stream> CpuDevice::make_stream(std::string name, StreamWidth width) {
  return std::make_unique<CpuStream>(*this, std::move(name), width);
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace ranvier::runtime
