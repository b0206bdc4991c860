// A device that records the cost of the work on its streams, and refuses work without a cost: like a phantom device,
// except that the work is done.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

class RecordingDevice final : public runtime::Device {
 public:
  struct Work {
    std::string stream;
    runtime::WorkCost cost;
  };

  /// Uses the streams and events of `near`, which runs work when it is launched (`inline`). `apart`: the value of
  /// Device::apart().
  explicit RecordingDevice(std::unique_ptr<runtime::Device> near = runtime::make_inline_device(),
                           bool apart = false)
      : near_(std::move(near)), apart_(apart) {}

  /// Work that was launched since the last clear(), in order.
  [[nodiscard]] const std::vector<Work>& work() const noexcept { return work_; }
  void clear() noexcept { work_.clear(); }

  runtime::DeviceKind kind() const noexcept override { return near_->kind(); }
  std::string description() const override { return "recording " + near_->description(); }
  int threads() const noexcept override { return near_->threads(); }
  std::size_t used_bytes() const noexcept override { return near_->used_bytes(); }
  std::size_t budget_bytes() const noexcept override { return near_->budget_bytes(); }
  runtime::Buffer allocate(std::size_t bytes, runtime::MemorySpace space) override {
    return near_->allocate(bytes, space);
  }
  bool apart() const noexcept override { return apart_; }
  bool host_reaches(const void* address) const override { return near_->host_reaches(address); }
  std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth width) override {
    return std::make_unique<RecordingStream>(*this, near_->make_stream(std::move(name), width));
  }
  std::unique_ptr<runtime::Event> make_event() override { return near_->make_event(); }
  void on_failure(std::function<void(std::exception_ptr)> handler) override {
    near_->on_failure(std::move(handler));
  }

 private:
  class RecordingStream final : public runtime::Stream {
   public:
    RecordingStream(RecordingDevice& device, std::unique_ptr<runtime::Stream> near)
        : device_(&device), near_(std::move(near)) {}
    runtime::Device& device() const noexcept override { return *device_; }
    const std::string& name() const noexcept override { return near_->name(); }
    void launch(Work) override { fail(ErrorCode::internal, "stream {}: work without a cost", name()); }
    void launch(const runtime::WorkCost& cost, Work work) override {
      device_->work_.push_back({name(), cost});
      near_->launch(std::move(work));
    }
    void call_back(std::function<void()> function) override { near_->call_back(std::move(function)); }
    void wait(const runtime::Event& event) override { near_->wait(event); }
    void synchronize() override { near_->synchronize(); }
    std::uint64_t done() const noexcept override { return near_->done(); }

   private:
    RecordingDevice* device_;
    std::unique_ptr<runtime::Stream> near_;
  };

  std::unique_ptr<runtime::Device> near_;
  bool apart_;
  std::vector<Work> work_;
};

}  // namespace ranvier::tests
