// A Stream is an ordered queue of work on a device; it owns, a StreamView travels. Work of one stream runs
// in the order of the calls, streams run beside each other, and an Event orders one after another.
//
//   scale(stream, ...);                 // kernels take a view and return at once
//   event->record(stream);              // "everything so far"
//   other.wait(*event);                 // other's later work starts after it
//   loop.after_work(stream, {"gradients", "the reduction of", "h.3"}, next);  // a handler, once all of it is done
//
// Calls on a stream come from the loop thread. On the `cpu` device each stream has a thread of its own, on `cuda` it
// is a queue of the GPU's; on `inline` everything has already happened when a call returns.
#pragma once

#include "runtime/own_work.hpp"
#include "runtime/work_cost.hpp"

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

/// How much of the device the work of a stream may use at a time.
enum class StreamWidth {
  whole,  ///< the device's compute pool; one such stream per device
  one,    ///< one thread of its own: copies, reductions of received chunks
};

/// What a stream did with work that may be repeated, so far.
struct Repeats {
  std::size_t kept = 0;      ///< records that the device has
  std::size_t replayed = 0;  ///< calls that were one of them
  std::size_t queued = 0;    ///< calls that ran `queue`
  std::string refused;       ///< why nothing is kept any more; empty: nothing stands against it
};

class Stream : public Workplace {
 public:
  using Work = std::function<void(ComputePool&)>;

  [[nodiscard]] virtual Device& device() const noexcept = 0;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;

  /// Runs `work` in order on this stream's thread. Devices `cpu` and `inline` only.
  /// An exception in it reaches Device::on_failure; from then on the device drops all work and callbacks.
  virtual void launch(Work work) = 0;

  /// The same, for a device that may have to take its time without doing it: all that trains says what it costs.
  virtual void launch([[maybe_unused]] const WorkCost& cost, Work work) { launch(std::move(work)); }

  /// Does what `queue` does, which queues work on this stream and nothing else: no callback, no event, no allocation.
  /// Calls of equal `key`s queue the same work on the same memory, so a device may keep what one of them queued and
  /// repeat it without a call (CUDA graphs). Others call `queue` every time.
  virtual void repeat([[maybe_unused]] std::span<const std::uint64_t> key, const std::function<void()>& queue) {
    queue();
  }
  [[nodiscard]] virtual Repeats repeats() const { return {}; }

  /// Calls `function` once everything queued so far is done, on a thread that may not be the loop's, in the order of
  /// the calls. It must be short and must not use the device. What is queued after it may not wait for it (on `cuda` it
  /// does not). Who waits for it on the loop says so there: EventLoop::after_work().
  virtual void call_back(std::function<void()> function) = 0;

  /// What is queued after this call starts after the last record of `event`.
  virtual void wait(const Event& event) = 0;

  /// Blocks until everything queued so far is done, and rethrows the device's failure. Never in a training step.
  virtual void synchronize() = 0;

  [[nodiscard]] std::string place() const override { return "stream '" + name() + "'"; }
  /// Pieces of work, or callbacks where only those are noticed (`cuda`).
  [[nodiscard]] std::uint64_t done() const noexcept override { return done_.load(std::memory_order_relaxed); }

 protected:
  /// By whoever runs the work, after each piece.
  void count_done() noexcept { done_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> done_ = 0;
};

class StreamView {
 public:
  StreamView(Stream& stream) : stream_(&stream) {}  // NOLINT: a view is made silently, as string_view is

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

  /// Whether the last recorded work is done; true if nothing was recorded. Any thread.
  /// After a failure of the device events are still reached, so that nobody waits for ever.
  [[nodiscard]] virtual bool reached() const = 0;
};

}  // namespace ranvier::runtime
