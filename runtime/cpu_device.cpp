#include "runtime/compute_pool.hpp"
#include "runtime/cpu_memory.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"
#include "runtime/failure_latch.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

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
    thread_ = std::thread([this] { serve(); });
    pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
  }

  /// What was queued still runs.
  ~CpuStream() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    arrived_.notify_one();
    thread_.join();
    if (width_ == StreamWidth::whole) device_.whole_taken_ = false;
  }

  [[nodiscard]] Device& device() const noexcept override { return device_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }

  void launch(Work work) override { enqueue({std::move(work), false}); }

  void call_back(std::function<void()> function) override {
    enqueue({[function = std::move(function)](ComputePool&) { function(); }, false});
  }

  void wait(const Event& event) override {
    const auto* of_cpu = dynamic_cast<const CpuEvent*>(&event);
    expect(of_cpu != nullptr, "stream {} waits for an event of another kind of device", name_);
    if (auto point = of_cpu->point(); point && !point->passed())
      enqueue({[point = std::move(point)](ComputePool&) { point->await(); }, true});
  }

  void synchronize() override {
    mark()->await();
    device_.failure_.rethrow_if_set();
  }

  /// A point behind everything queued so far; passed after a failure, too.
  std::shared_ptr<const Point> mark() {
    auto point = std::make_shared<Point>();
    enqueue({[point](ComputePool&) { point->pass(); }, true});
    return point;
  }

 private:
  struct Item {
    Work work;
    bool after_failure = false;  // order is kept even when work no longer runs: nobody waits for ever
  };

  void enqueue(Item item) {
    bool was_empty = false;
    {
      const std::lock_guard lock(mutex_);
      was_empty = queue_.empty();
      queue_.push_back(std::move(item));
    }
    if (was_empty) arrived_.notify_one();
  }

  void serve() {
    ComputePool alone(1);
    ComputePool& pool = width_ == StreamWidth::whole ? device_.pool_ : alone;
    std::vector<Item> batch;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [&] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        batch.swap(queue_);
      }
      for (Item& item : batch) {
        if (!device_.failure_.is_set() || item.after_failure) run(item, pool);
        item.work = nullptr;  // what it holds is let go in order, too
      }
      batch.clear();
    }
  }

  void run(Item& item, ComputePool& pool) noexcept {
    try {
      item.work(pool);
    } catch (...) {
      device_.failure_.set(std::current_exception());
    }
  }

  CpuDevice& device_;
  const std::string name_;
  const StreamWidth width_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Item> queue_;
  bool closing_ = false;

  std::thread thread_;
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
