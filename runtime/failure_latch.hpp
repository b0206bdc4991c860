// The first exception that work on a device threw. From then on the device runs no work: results that
// depend on what failed must not travel on. Any thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>

namespace ranvier::runtime {

class FailureLatch {
 public:
  /// Called once with the failure: when it comes, or here if it has come.
  void on_failure(std::function<void(std::exception_ptr)> handler);

  /// Keeps the first error and hands it to the handler; later ones are forgotten.
  void set(std::exception_ptr error);

  [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
  void rethrow_if_set() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> is_set_{false};
  std::exception_ptr error_;
  std::function<void(std::exception_ptr)> handler_;
};

}  // namespace ranvier::runtime
