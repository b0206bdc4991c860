#include "runtime/device/failure_latch.hpp"

#include <utility>

namespace ranvier::runtime {

void FailureLatch::on_failure(std::function<void(std::exception_ptr)> handler) {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (!error_) {
      handler_ = std::move(handler);
      return;
    }
    error = error_;
  }
  if (handler) handler(error);
}

void FailureLatch::set(std::exception_ptr error) {
  std::function<void(std::exception_ptr)> handler;
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
    is_set_.store(true, std::memory_order_release);
    handler = std::exchange(handler_, nullptr);
  }
  if (handler) handler(error);
}

void FailureLatch::rethrow_if_set() const {
  if (!is_set()) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

}  // namespace ranvier::runtime
