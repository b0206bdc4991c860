// A device for simulated ranks that runs its work late. A stream's work runs in order, each item some virtual time
// after the one before, and some streams are always slow. So work that is queued but not done, which an inline device
// never has, meets messages and handlers in seeded orders.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/loop/event_loop.hpp"
#include "tests/doubles/forwarding.hpp"

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>

namespace ranvier::tests {

class DelayedDevice final : public ForwardingDevice {
 public:
  /// Work on a slow stream is done within `slow`; every fourth stream is slow, or all with a `share` of 1. The loop,
  /// which belongs to a simulation, must outlive the device.
  DelayedDevice(runtime::EventLoop& loop, std::uint64_t seed, runtime::Duration slow = std::chrono::milliseconds(2),
                int share = 4)
      : ForwardingDevice(runtime::make_inline_device()),
        loop_(&loop),
        random_(seed),
        slow_(slow),
        share_(static_cast<std::uint64_t>(share)) {}

  std::string description() const override { return "delayed"; }
  std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth) override {
    return std::make_unique<DelayedStream>(*this, std::move(name));
  }
  std::unique_ptr<runtime::Event> make_event() override {
    fail(ErrorCode::internal, "a delayed device has no events");
  }
  /// From `when` on, nothing that the stream of this name has queued is ever done.
  void stall(std::string stream, runtime::Duration when) {
    stalled_ = std::move(stream);
    stalls_at_ = when;
  }

 private:
  class DelayedStream final : public runtime::Stream {
   public:
    DelayedStream(DelayedDevice& device, std::string name)
        : Stream(device, std::move(name), runtime::StreamWidth::one),
          device_(&device),
          slow_(device.random_() % device.share_ == 0) {}
    ~DelayedStream() override {
      *alive_ = false;
      while (!queue_.empty()) run_next();
    }

    void launch(Work work) override {
      queue_.push_back(std::move(work));
      if (queue_.size() == 1) run_later();
    }
    void wait(const runtime::Event&) override { fail(ErrorCode::internal, "a delayed device has no events"); }
    void synchronize() override {
      while (!queue_.empty()) run_next();
    }

   private:
    void run_later() {
      const runtime::Duration longest = slow_ ? device_->slow_ : std::chrono::microseconds(20);
      const auto delay =
          static_cast<runtime::Duration::rep>(device_->random_() % static_cast<std::uint64_t>(longest.count()));
      device_->loop_->after(runtime::Duration(delay), [this, alive = alive_] {
        if (!*alive || queue_.empty()) return;
        if (name() == device_->stalled_ && device_->loop_->now() >= device_->stalls_at_) return;
        run_next();
        if (!queue_.empty()) run_later();
      });
    }
    void run_next() {
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      work(pool_);
      count_done();
    }

    DelayedDevice* device_;
    bool slow_;
    std::deque<Work> queue_;
    runtime::ComputePool pool_{1};
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  };

  runtime::EventLoop* loop_;
  std::mt19937_64 random_;
  runtime::Duration slow_;
  std::uint64_t share_;
  std::string stalled_;
  runtime::Duration stalls_at_{};
};

}  // namespace ranvier::tests
