// A host device whose device memory is declared inaccessible to the host, like a GPU's. It tests transfers through
// pinned memory without a GPU.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

class FarDevice final : public runtime::Device {
 public:
  /// Uses the streams and events of `near`.
  explicit FarDevice(std::unique_ptr<runtime::Device> near) : near_(std::move(near)) {}

  runtime::DeviceKind kind() const noexcept override { return near_->kind(); }
  std::string description() const override { return "far " + near_->description(); }
  int threads() const noexcept override { return near_->threads(); }
  std::size_t used_bytes() const noexcept override { return near_->used_bytes(); }
  std::size_t budget_bytes() const noexcept override { return near_->budget_bytes(); }
  runtime::Buffer allocate(std::size_t bytes, runtime::MemorySpace space) override {
    expect(closed_.count(space) == 0, "{} bytes of {} memory were requested after allocation was closed", bytes,
           runtime::to_string(space));
    auto buffer = near_->allocate(bytes, space);
    if (space == runtime::MemorySpace::device) far_.emplace_back(buffer.data(), bytes);
    return buffer;
  }
  /// As a run on a GPU closes it (runtime/device/cuda_build.hpp).
  void close(runtime::MemorySpace space) { closed_.insert(space); }
  bool host_reaches(const void* address) const override {
    for (const auto& [begin, bytes] : far_) {
      if (address >= begin && address < begin + bytes) return false;
    }
    return true;
  }
  std::unique_ptr<runtime::Stream> make_stream(std::string name, runtime::StreamWidth width) override {
    return std::make_unique<FarStream>(*this, near_->make_stream(std::move(name), width));
  }
  std::unique_ptr<runtime::Event> make_event() override { return near_->make_event(); }
  void on_failure(std::function<void(std::exception_ptr)> handler) override {
    near_->on_failure(std::move(handler));
  }

 private:
  class FarStream final : public runtime::Stream {
   public:
    FarStream(FarDevice& device, std::unique_ptr<runtime::Stream> near)
        : device_(&device), near_(std::move(near)) {}
    runtime::Device& device() const noexcept override { return *device_; }
    const std::string& name() const noexcept override { return near_->name(); }
    void launch(Work work) override { near_->launch(std::move(work)); }
    void call_back(std::function<void()> function) override { near_->call_back(std::move(function)); }
    void wait(const runtime::Event& event) override { near_->wait(event); }
    void synchronize() override { near_->synchronize(); }
    std::uint64_t done() const noexcept override { return near_->done(); }

   private:
    FarDevice* device_;
    std::unique_ptr<runtime::Stream> near_;
  };

  std::unique_ptr<runtime::Device> near_;
  std::set<runtime::MemorySpace> closed_;
  std::vector<std::pair<const std::byte*, std::size_t>> far_;  // buffers of a test live as long as this device
};

}  // namespace ranvier::tests
