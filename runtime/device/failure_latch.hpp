// Latch for the first exception of work on a device. Afterwards the device runs no work, since later results may depend
// on the failed one. Callable from any thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace ranvier::runtime {

class FailureLatch {
 public:
  /// Sets the handler, which is called once with the first failure; at once if it has already occurred.
  void on_failure(std::function<void(std::exception_ptr)> handler) {
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

  /// Stores the first error and passes it to the handler; ignores later ones.
  void set(std::exception_ptr error) {
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

  [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
  void rethrow_if_set() const {
    if (!is_set()) return;
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(error_);
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> is_set_{false};
  std::exception_ptr error_;
  std::function<void(std::exception_ptr)> handler_;
};

}  // namespace ranvier::runtime
