#include "runtime/loop/asio_loop.hpp"
#include "tests/test.hpp"

#include <stdexcept>
#include <thread>

using namespace ranvier::runtime;
using namespace std::chrono_literals;

namespace {

/// Returns that work is outstanding until it was polled `answers` times, then calls `done`.
class Countdown final : public PollSource {
 public:
  Countdown(int answers, Handler done) : left_(answers), done_(std::move(done)) {}
  bool poll() override {
    if (--left_ == 0) done_();
    return false;
  }
  [[nodiscard]] bool active() const noexcept override { return left_ > 0; }

 private:
  int left_;
  Handler done_;
};

/// Always outstanding.
class Waiting final : public PollSource {
 public:
  bool poll() override {
    ++asked;
    return false;
  }
  [[nodiscard]] bool active() const noexcept override { return true; }
  int asked = 0;
};

}  // namespace

TEST_CASE("handlers run in the order of their posts, also those that handlers post") {
  AsioLoop loop;
  std::vector<int> seen;
  loop.post([&] {
    seen.push_back(1);
    loop.post([&] {
      seen.push_back(3);
      loop.stop();
    });
  });
  loop.post([&] { seen.push_back(2); });
  loop.run();
  CHECK(seen == std::vector{1, 2, 3});
}

TEST_CASE("handlers that other threads post each keep their thread's order") {
  constexpr int threads = 3, posts = 2000;
  AsioLoop loop;
  std::vector<std::vector<int>> seen(threads);
  int total = 0;
  std::vector<std::jthread> posters;
  for (int thread = 0; thread < threads; ++thread) {
    posters.emplace_back([&, thread] {
      for (int i = 0; i < posts; ++i) {
        loop.post([&, thread, i] {
          seen[thread].push_back(i);
          if (++total == threads * posts) loop.stop();
        });
        if (i % 100 == 0) std::this_thread::sleep_for(50us);  // lets the loop go to sleep
      }
    });
  }
  loop.run();
  for (const auto& values : seen) {
    REQUIRE(values.size() == posts);
    for (int i = 0; i < posts; ++i) REQUIRE(values[i] == i);
  }
}

TEST_CASE("no handler runs after stop, and a later run continues with the remaining ones") {
  AsioLoop loop;
  int ran = 0;
  loop.post([&] { loop.stop(); });
  loop.post([&] {
    ++ran;
    loop.stop();
  });
  loop.run();
  CHECK(ran == 0);
  loop.run();
  CHECK(ran == 1);
}

TEST_CASE("an exception of a handler propagates out of run, and the handlers queued after it stay queued") {
  AsioLoop loop;
  loop.post([] { throw std::runtime_error("no"); });
  loop.post([&] { loop.stop(); });
  CHECK_THROWS_WITH(loop.run(), "no");
  loop.run();
}

TEST_CASE("run throws the first error passed to stop") {
  AsioLoop loop;
  loop.post([&] {
    loop.stop(std::make_exception_ptr(std::runtime_error("first")));
    loop.stop(std::make_exception_ptr(std::runtime_error("second")));
  });
  CHECK_THROWS_WITH(loop.run(), "first");
}

TEST_CASE("timers run in the order of their times and not early") {
  AsioLoop loop;
  std::vector<int> seen;
  const auto start = loop.now();
  loop.after(4ms, [&] {
    seen.push_back(2);
    CHECK(loop.now() - start >= 4ms);
    loop.stop();
  });
  loop.after(1ms, [&] {
    seen.push_back(1);
    CHECK(loop.now() - start >= 1ms);
  });
  loop.run();
  CHECK(seen == std::vector{1, 2});
}

TEST_CASE("timers run while a source is busy") {
  AsioLoop loop;
  Waiting source;
  loop.add_source(source);
  loop.after(2ms, [&] { loop.stop(); });
  loop.run();
  CHECK(source.asked > 0);
}

TEST_CASE("a source is polled until it is idle, then the loop still handles posts and timers") {
  AsioLoop loop;
  Countdown source(100, [&] { loop.after(5ms, [&] { loop.post([&] { loop.stop(); }); }); });
  loop.add_source(source);
  loop.run();
  CHECK_FALSE(source.active());
}

TEST_CASE("a post from another thread ends a sleep at once") {
  AsioLoop loop({.spin = 0us, .yield = 0us, .sleep_first = 10s, .sleep_longest = 10s});
  Waiting source;
  loop.add_source(source);
  std::jthread poster([&] {
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(2ms);
      loop.post([] {});
    }
    loop.post([&] { loop.stop(); });
  });
  loop.run();  // hangs for seconds if a sleep is not ended
  CHECK(loop.now() < 5s);
}

TEST_CASE("stop from another thread ends a loop that has nothing to wait for") {
  AsioLoop loop;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(5ms);
    loop.stop();
  });
  loop.run();
}

TEST_CASE("the heartbeat continues while the loop is idle") {
  AsioLoop loop;
  std::uint64_t before = 0;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(10ms);
    before = loop.heartbeat();
    std::this_thread::sleep_for(200ms);
    loop.stop();
  });
  loop.run();
  CHECK(loop.heartbeat() > before + 1);
}

TEST_CASE("a loop with timers and handlers left can be destroyed") {
  AsioLoop loop;
  loop.after(1h, [] {});
  loop.post([] {});
}
