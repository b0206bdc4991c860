// The threads of one CPU device. A kernel that runs on a stream splits its work over them:
//
//   pool.run([&](int thread, int threads) { ... rows of this thread ... });
//
// One caller at a time: the pool belongs to the wide stream of its device. A pool of one thread has no
// threads of its own and calls at once, and every narrow stream has such a pool.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace ranvier::runtime {

/// The half-open range of [0, items) that `thread` of `threads` works on, cut at multiples of `grain`.
struct Share {
  std::size_t begin = 0;
  std::size_t end = 0;
};
[[nodiscard]] Share share_of(std::size_t items, int thread, int threads, std::size_t grain = 1);

/// How long a thread of pools that are made from now on watches for the next kernel before it sleeps: 50 µs at first,
/// which suits kernels that follow each other closely. 0 suits many programs on few cores, each of which would keep a
/// core from the others. Any thread.
void set_pool_spin_time(std::chrono::nanoseconds time) noexcept;

class ComputePool {
 public:
  /// `threads` counts the calling thread.
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  [[nodiscard]] int threads() const noexcept { return threads_; }

  /// Calls task(thread, threads()) once for every thread, index 0 on the caller's; returns when all have
  /// returned. The first exception of any of them is rethrown here.
  void run(const std::function<void(int thread, int threads)>& task);

 private:
  struct Workers;
  int threads_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace ranvier::runtime
