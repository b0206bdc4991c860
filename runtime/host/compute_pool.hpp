// Threads of one CPU device. A kernel on a stream splits its work over them:
//
//   pool.run([&](int thread, int threads) { ... rows of this thread ... });
//
// One caller at a time: the pool belongs to the wide stream of its device. A pool of one thread starts no threads and
// runs the task on the caller; every narrow stream has such a pool.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace ranvier::runtime {

/// Half-open range of [0, items) for `thread` of `threads`, cut at multiples of `grain`.
struct Share {
  std::size_t begin = 0;
  std::size_t end = 0;
};
[[nodiscard]] Share share_of(std::size_t items, int thread, int threads, std::size_t grain = 1);

/// Sets how long a worker thread spins before it sleeps, for pools made afterwards (default 50 µs). 0 suits several
/// programs that share few cores. Pools with more threads than available cores never spin. Callable from any thread.
void set_pool_spin_time(std::chrono::nanoseconds time) noexcept;

class ComputePool {
 public:
  /// `threads` counts the calling thread.
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  [[nodiscard]] int threads() const noexcept { return threads_; }

  /// Calls task(thread, threads()) once per thread, index 0 on the caller, and returns when all have returned.
  /// Rethrows the first exception.
  void run(const std::function<void(int thread, int threads)>& task);

 private:
  struct Workers;
  int threads_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace ranvier::runtime
