// A device that computes inline, but reports completion at the time of a phantom device: a real rank's work takes the
// time of its cost. Work is carried out when it is queued.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/doubles/forwarding.hpp"

#include <memory>
#include <string>
#include <utility>

namespace ranvier::tests {

class TimedDevice final : public ForwardingDevice {
 public:
  /// `clock` is a phantom device.
  explicit TimedDevice(std::unique_ptr<runtime::Device> clock)
      : ForwardingDevice(runtime::make_inline_device()), clock_(std::move(clock)) {}

  std::string description() const override { return "timed"; }
  int threads() const noexcept override { return clock_->threads(); }
  std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth width) override {
    return std::make_unique<TimedStream>(*this, clock_->make_stream(std::move(name), width));
  }
  std::unique_ptr<runtime::Event> make_event() override {
    return std::make_unique<TimedEvent>(clock_->make_event());
  }
  std::unique_ptr<runtime::Device> make_host_device(int threads) const override {
    return std::make_unique<TimedDevice>(clock_->make_host_device(threads));
  }

 private:
  class TimedStream final : public runtime::Stream {
   public:
    TimedStream(TimedDevice& device, std::unique_ptr<runtime::Stream> clock)
        : Stream(device, clock->name(), runtime::StreamWidth::one), clock_(std::move(clock)) {}

    void launch(Work) override { fail(ErrorCode::internal, "stream {}: work without a cost", name()); }
    void launch(const runtime::WorkCost& cost, Work work) override {
      work(pool_);
      count_done();
      clock_->launch(cost, {});
    }
    void call_back(std::function<void()> function) override { clock_->call_back(std::move(function)); }
    void wait(const runtime::Event& event) override {
      clock_->wait(dynamic_cast<const TimedEvent&>(event).clock());
    }
    void synchronize() override {}  // all work is done

    [[nodiscard]] runtime::Stream& clock() const noexcept { return *clock_; }

   private:
    std::unique_ptr<runtime::Stream> clock_;
    runtime::ComputePool pool_{1};
  };

  class TimedEvent final : public runtime::Event {
   public:
    explicit TimedEvent(std::unique_ptr<runtime::Event> clock) : clock_(std::move(clock)) {}

    void record(runtime::StreamView stream) override {
      clock_->record(dynamic_cast<TimedStream&>(stream.stream()).clock());
    }
    [[nodiscard]] bool reached() const override { return clock_->reached(); }
    [[nodiscard]] const runtime::Event& clock() const noexcept { return *clock_; }

   private:
    std::unique_ptr<runtime::Event> clock_;
  };

  std::unique_ptr<runtime::Device> clock_;
};

}  // namespace ranvier::tests
