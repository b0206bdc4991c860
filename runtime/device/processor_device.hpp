// Common base of the CPU devices (cpu_device.cpp, inline_device.cpp): memory with a budget, a thread pool for one
// wide stream, and the first failure. Only these two files include this. Loop thread only, except pools and
// failure().
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/device/cpu_memory.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/failure_latch.hpp"
#include "runtime/host/compute_pool.hpp"

#include <string>
#include <utility>

namespace ranvier::runtime {

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
  void on_failure(std::function<void(std::exception_ptr)> handler) final {
    failure_.on_failure(std::move(handler));
  }

  [[nodiscard]] FailureLatch& failure() noexcept { return failure_; }

 private:
  friend class StreamPool;

  const char* const name_;
  CpuMemory memory_;
  ComputePool pool_;
  FailureLatch failure_;
  bool whole_taken_ = false;
};

/// Compute pool of a stream: the device's pool if wide, else a single thread.
class StreamPool {
 public:
  StreamPool(ProcessorDevice& device, const std::string& stream, StreamWidth width)
      : device_(device), whole_(width == StreamWidth::whole) {
    expect(!whole_ || !device.whole_taken_, "stream {}: the device has a stream of its whole width already",
           stream);
    device.whole_taken_ = device.whole_taken_ || whole_;
  }
  ~StreamPool() {
    if (whole_) device_.whole_taken_ = false;
  }
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  [[nodiscard]] ComputePool& get() noexcept { return whole_ ? device_.pool_ : alone_; }

 private:
  ProcessorDevice& device_;
  const bool whole_;
  ComputePool alone_{1};
};

}  // namespace ranvier::runtime
