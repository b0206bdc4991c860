#include "runtime/host/compute_pool.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/host/cores.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ranvier::runtime {
namespace {

std::atomic<std::chrono::nanoseconds> spin_time{std::chrono::microseconds(50)};

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns when `value` differs from `old`: spins for `spin`, then sleeps.
void await_change(const std::atomic<unsigned>& value, unsigned old, std::chrono::nanoseconds spin) {
  if (spin.count() > 0) {
    const auto limit = std::chrono::steady_clock::now() + spin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < limit);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

void set_pool_spin_time(std::chrono::nanoseconds time) noexcept { spin_time = time; }

Share share_of(std::size_t items, int thread, int threads, std::size_t grain) {
  const std::size_t grains = ceil_divide(items, grain);
  const auto cut = [&](int at) {
    const auto whole = grains / static_cast<std::size_t>(threads) * static_cast<std::size_t>(at);
    const auto rest = std::min(grains % static_cast<std::size_t>(threads), static_cast<std::size_t>(at));
    return std::min((whole + rest) * grain, items);
  };
  return {cut(thread), cut(thread + 1)};
}

struct ComputePool::Workers {
  explicit Workers(int threads)
      : spin(threads <= available_cores() ? spin_time.load() : std::chrono::nanoseconds(0)) {
    threads_of_workers.reserve(static_cast<std::size_t>(threads - 1));
    try {
      for (int thread = 1; thread < threads; ++thread)
        threads_of_workers.emplace_back([this, thread, threads] { serve(thread, threads); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Workers() { stop(); }

  void stop() {
    stopping = true;
    announce();
    for (auto& worker : threads_of_workers) worker.join();
  }

  void announce() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  void serve(int thread, int threads) {
    for (unsigned seen = 0;; ++seen) {
      await_change(generation, seen, spin);
      if (stopping) return;
      attempt(thread, threads);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void attempt(int thread, int threads) noexcept {
    try {
      (*task)(thread, threads);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }

  const std::chrono::nanoseconds spin;

  // Written by the caller before `generation` moves, read by workers after it has.
  const std::function<void(int, int)>* task = nullptr;
  bool stopping = false;

  alignas(64) std::atomic<unsigned> generation{0};
  alignas(64) std::atomic<unsigned> running{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads_of_workers;
};

ComputePool::ComputePool(int threads) : threads_(threads) {
  expect(threads >= 1, "a compute pool needs at least one thread, not {}", threads);
  if (threads > 1) workers_ = std::make_unique<Workers>(threads);
}

ComputePool::~ComputePool() = default;

void ComputePool::run(const std::function<void(int thread, int threads)>& task) {
  if (!workers_) return task(0, 1);
  Workers& workers = *workers_;
  workers.task = &task;
  workers.running.store(static_cast<unsigned>(threads_ - 1), std::memory_order_relaxed);
  workers.announce();
  workers.attempt(0, threads_);
  for (unsigned left; (left = workers.running.load(std::memory_order_acquire)) != 0;)
    await_change(workers.running, left, workers.spin);
  if (workers.failure) std::rethrow_exception(std::exchange(workers.failure, nullptr));
}

}  // namespace ranvier::runtime
