// Allocates memory of a CPU device with mmap and counts it against a budget. Thread-safe.
#pragma once

#include "runtime/device/device.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>

namespace ranvier::runtime {

class CpuMemory {
 public:
  /// `budget_bytes` limits MemorySpace::device; none: physical memory.
  explicit CpuMemory(std::optional<std::size_t> budget_bytes);

  /// Same contract as Device::allocate. Pages of large pinned memory are touched at once, on all usable cores. The
  /// buffer may outlive this object.
  [[nodiscard]] Buffer allocate(std::size_t bytes, MemorySpace space);

  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_->load(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return budget_; }

 private:
  std::size_t budget_;
  std::shared_ptr<std::atomic<std::size_t>> used_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace ranvier::runtime
