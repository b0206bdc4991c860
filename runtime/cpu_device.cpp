#include "runtime/compute_pool.hpp"
#include "runtime/cpu_memory.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"
#include "runtime/failure_latch.hpp"
#include "runtime/ordered_worker.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace ranvier::runtime {
namespace {

/// A place in a stream's queue that has been passed or not.
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

  /// The last record; each has a point of its own, so that who waits for one is not woken by the next.
  [[nodiscard]] std::shared_ptr<const Point> point() const {
    const std::lock_guard lock(mutex_);
    return point_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Point> point_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options) : memory_(options.budget_bytes), pool_(options.threads) {}

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cpu; }
  [[nodiscard]] std::string description() const override {
    return fmt::format("cpu, {} thread{}", threads(), threads() == 1 ? "" : "s");
  }
  [[nodiscard]] int threads() const noexcept override { return pool_.threads(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept override { return memory_.used_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept override { return memory_.budget_bytes(); }
  [[nodiscard]] Buffer allocate(std::size_t bytes, MemorySpace space) override {
    return memory_.allocate(bytes, space);
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name, StreamWidth width) override;
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  void on_failure(std::function<void(std::exception_ptr)> handler) override {
    failure_.on_failure(std::move(handler));
  }

 private:
  friend class CpuStream;

  CpuMemory memory_;
  ComputePool pool_;
  FailureLatch failure_;
  bool whole_taken_ = false;  // loop thread only
};

class CpuStream final : public Stream {
 public:
  CpuStream(CpuDevice& device, std::string name, StreamWidth width)
      : device_(device), name_(std::move(name)), width_(width) {
    if (width == StreamWidth::whole) {
      expect(!device.whole_taken_, "stream {}: the device has a stream of its whole width already", name_);
      device.whole_taken_ = true;
    }
  }

  /// What was queued still runs.
  ~CpuStream() override {
    if (width_ == StreamWidth::whole) device_.whole_taken_ = false;
  }

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
    device_.failure_.rethrow_if_set();
  }

  /// A point behind everything queued so far; passed after a failure, too.
  std::shared_ptr<const Point> mark() {
    auto point = std::make_shared<Point>();
    worker_.push({[point](ComputePool&) { point->pass(); }, true});
    return point;
  }

 private:
  struct Item {
    Work work;
    bool after_failure = false;  // order is kept even when work no longer runs: nobody waits for ever
  };

  void handle(Item& item) noexcept {
    if (device_.failure_.is_set() && !item.after_failure) return;
    try {
      item.work(width_ == StreamWidth::whole ? device_.pool_ : alone_);
    } catch (...) {
      device_.failure_.set(std::current_exception());
    }
    count_done();
  }

  CpuDevice& device_;
  const std::string name_;
  const StreamWidth width_;
  ComputePool alone_{1};
  OrderedWorker<Item> worker_{name_, [this](Item& item) { handle(item); }};  // last: its thread uses all the others
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
