#include "runtime/base/error.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <chrono>
#include <thread>

using namespace ranvier;
using namespace ranvier::runtime;

TEST_CASE("shares cover all items once, in order, split at the grain and even within one grain") {
  for (const std::size_t items : {0, 1, 63, 64, 65, 1000, 4096})
    for (const int threads : {1, 2, 3, 7, 64})
      for (const std::size_t grain : {1, 16, 64}) {
        CAPTURE_ALL(items, threads, grain);
        std::size_t next = 0, least = items, most = 0;
        for (int thread = 0; thread < threads; ++thread) {
          const runtime::Share share = share_of(items, thread, threads, grain);
          CHECK(share.begin == next);
          CHECK((share.begin % grain == 0 || share.begin == items));
          next = share.end;
          least = std::min(least, share.end - share.begin);
          most = std::max(most, share.end - share.begin);
        }
        CHECK(next == items);
        CHECK(most - least <= grain + (items % grain == 0 ? 0 : grain));
      }
}

TEST_CASE("a pool calls every thread once per run, the caller as number 0") {
  for (const auto& [threads, spin] : {std::pair{1, 50}, {2, 50}, {2, 0}, {3, 0}, {8, 0}}) {
    CAPTURE_ALL(threads, spin);
    set_pool_spin_time(std::chrono::microseconds(spin));
    ComputePool pool(threads);
    set_pool_spin_time(std::chrono::nanoseconds(0));
    CHECK(pool.threads() == threads);
    std::vector<int> calls(static_cast<std::size_t>(threads));  // plain: run() orders the accesses
    for (int round = 0; round < 1000; ++round) {
      std::thread::id zero;
      pool.run([&](int thread, int of) {
        if (of == threads) ++calls[static_cast<std::size_t>(thread)];
        if (thread == 0) zero = std::this_thread::get_id();
      });
      CHECK(zero == std::this_thread::get_id());
    }
    for (const int count : calls) CHECK(count == 1000);
  }
}

TEST_CASE("a pool serves callers on different threads, one after another, and sleeps between") {
  ComputePool pool(2);
  std::atomic<int> calls{0};
  for (int round = 0; round < 5; ++round) {
    std::thread([&] { pool.run([&](int, int) { ++calls; }); }).join();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(calls == 10);
}

TEST_CASE("a pool rethrows an exception of any thread after all have returned, and continues to work") {
  for (const int threads : {1, 2, 4}) {
    ComputePool pool(threads);
    for (int thrower = 0; thrower < threads; ++thrower) {
      std::atomic<int> calls{0};
      CHECK_THROWS_WITH(pool.run([&](int thread, int) {
        ++calls;
        if (thread == thrower) fail(ErrorCode::numeric, "thread {}", thread);
      }),
                        doctest::String("thread ") + doctest::toString(thrower));
      CHECK(calls == threads);
    }
    std::atomic<int> calls{0};
    CHECK_THROWS_AS(pool.run([&](int, int) -> void {
      ++calls;
      throw std::runtime_error("all");
    }),
                    std::runtime_error);
    CHECK(calls == threads);
    pool.run([](int, int) {});
  }
}

TEST_CASE("a pool without threads is refused") { CHECK_THROWS_AS(ComputePool(0), Error); }
