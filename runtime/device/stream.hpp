// Stream: ordered queue of work on a device. Stream owns it, StreamView is passed around; an Event orders one stream
// after another. Streams are called from the loop thread. Their work runs on a thread (`cpu`), on the GPU (`cuda`),
// or during the call (`inline`).
//
//   scale(stream, ...);                 // kernels take a view and return at once
//   event->record(stream);              // "everything so far"
//   other.wait(*event);                 // other's later work starts after it
//   loop.after_work(stream, {"gradients", "the reduction of", "h.3"}, next);  // handler, once all of it is done
#pragma once

#include "runtime/device/work_cost.hpp"
#include "runtime/liveness/pending_work.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ranvier::runtime {

class ComputePool;
class Device;
class Event;

/// Part of the device that a stream's work may use at a time.
enum class StreamWidth {
  whole,  ///< the device's compute pool; one such stream per device
  one,    ///< one thread of its own: copies, reductions of received chunks
};

/// Statistics of Stream::repeat().
struct GraphStats {
  std::size_t kept = 0;      ///< recordings that the device has
  std::size_t replayed = 0;  ///< calls that launched a recording
  std::size_t queued = 0;    ///< calls that ran `queue`
  std::string refused;       ///< reason why recording was given up; empty: still in use
};

class Stream : public ProgressSource {
 public:
  using Work = std::function<void(ComputePool&)>;

  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Device& device() const noexcept { return owner_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Runs `work` in order on this stream's thread. Devices `cpu` and `inline` only.
  /// An exception in it reaches Device::on_failure; from then on the device drops all work and callbacks.
  virtual void launch(Work work) = 0;

  /// Same with a cost, for devices that only take the time of the work. All work of training states its cost.
  virtual void launch([[maybe_unused]] const WorkCost& cost, Work work) { launch(std::move(work)); }

  /// Queues the same work as `queue`, which may only queue work on this stream: no callback, event or allocation.
  /// Calls with equal `key` must queue the same work on the same memory, so that a device may record it and replay it
  /// without a call (CUDA graphs). Other devices call `queue` every time.
  virtual void repeat([[maybe_unused]] std::span<const std::uint64_t> key, const std::function<void()>& queue) {
    queue();
  }
  [[nodiscard]] virtual GraphStats graph_stats() const { return {}; }

  /// Calls `function` once everything queued so far is done, in the order of the calls. Its thread may not be the
  /// loop's. It must be short and must not use the device. Later work does not necessarily wait for it (on `cuda` it
  /// does not). For handlers on the loop use EventLoop::after_work().
  virtual void call_back(std::function<void()> function) {
    launch([function = std::move(function)](ComputePool&) { function(); });
  }

  /// Makes work queued from now on wait for the last record of `event`.
  virtual void wait(const Event& event) = 0;

  /// Blocks until everything queued so far is done; rethrows the device's failure. Never in a training step.
  virtual void synchronize() = 0;

  [[nodiscard]] std::string place() const override { return "stream '" + name_ + "'"; }
  /// Number of pieces of work done; on `cuda`, of callbacks.
  [[nodiscard]] std::uint64_t done() const noexcept override { return done_.load(std::memory_order_relaxed); }

 protected:
  /// Throws ErrorCode::internal if the device has a stream of its whole width already.
  Stream(Device& device, std::string name, StreamWidth width);

  [[nodiscard]] bool whole() const noexcept { return width_ == StreamWidth::whole; }
  /// Called after each piece by the thread that runs it.
  void count_done() noexcept { done_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Device& owner_;
  const std::string name_;
  const StreamWidth width_;
  std::atomic<std::uint64_t> done_ = 0;
};

class StreamView {
 public:
  StreamView(Stream& stream) : stream_(&stream) {}  // NOLINT: implicit, as in string_view

  [[nodiscard]] Device& device() const noexcept { return stream_->device(); }
  [[nodiscard]] const std::string& name() const noexcept { return stream_->name(); }
  void launch(Stream::Work work) const { stream_->launch(std::move(work)); }
  void launch(const WorkCost& cost, Stream::Work work) const { stream_->launch(cost, std::move(work)); }
  void repeat(std::span<const std::uint64_t> key, const std::function<void()>& queue) const {
    stream_->repeat(key, queue);
  }
  void call_back(std::function<void()> function) const { stream_->call_back(std::move(function)); }
  void wait(const Event& event) const { stream_->wait(event); }
  void synchronize() const { stream_->synchronize(); }
  [[nodiscard]] Stream& stream() const noexcept { return *stream_; }

  friend bool operator==(StreamView, StreamView) = default;

 private:
  Stream* stream_;
};

class Event {
 public:
  virtual ~Event() = default;

  /// Marks the work queued on `stream` so far; a later record replaces an earlier one.
  virtual void record(StreamView stream) = 0;

  /// Whether the last recorded work is done; true if nothing was recorded. After a failure of the device events are
  /// still reached, so that no caller waits forever. Callable from any thread.
  [[nodiscard]] virtual bool reached() const = 0;
};

}  // namespace ranvier::runtime
