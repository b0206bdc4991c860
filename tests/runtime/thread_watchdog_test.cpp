// Which blocked threads and event loops the watchdog ends, and which it leaves alone.
#include "runtime/liveness/thread_watchdog.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

using namespace ranvier;
using namespace std::chrono_literals;

namespace {

constexpr runtime::Duration timeout = 400ms;

/// A watchdog that records why it would end the process.
class Watched {
 public:
  [[nodiscard]] runtime::ThreadWatchdog& operator*() { return watch_; }
  [[nodiscard]] runtime::ThreadWatchdog* operator->() { return &watch_; }
  /// Waits until the watchdog fires.
  [[nodiscard]] std::string why() { return why_.get_future().get(); }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  std::promise<std::string> why_;
  std::atomic<bool> ended_ = false;
  runtime::ThreadWatchdog watch_{{.timeout = timeout,
                                  .who = "rank 1",
                                  .end =
                                      [this](const std::string& why) {
                                        ended_ = true;
                                        why_.set_value(why);
                                      },
                                  .tell = nullptr}};
};

}  // namespace

TEST_CASE("a blocked thread is ended with its activity and the item in progress") {
  Watched watched;
  watched->does("loads its weights");
  watched->about("h.3 of model.safetensors");
  CHECK(watched->doing().starts_with("loads its weights: h.3 of model.safetensors, for "));
  const std::string why = watched.why();
  CAPTURE(why);
  CHECK(why.starts_with("rank 1 stands still: it loads its weights: h.3 of model.safetensors, for "));
  CHECK(why.find("and nothing has moved for 0.4 s (`timeout` 0.4)") != std::string::npos);
}

TEST_CASE("a thread that reports progress is left alone, as are those that are paused or have a longer timeout") {
  Watched moves, rests, patient;
  moves->does("loads its weights");
  rests->does("loads its weights");
  rests->rests();
  CHECK(rests->doing().empty());
  patient->does("ends", 1000);
  for (int i = 0; i < 30; ++i) {
    std::this_thread::sleep_for(timeout / 10);
    moves->moved();
  }
  CHECK_FALSE(moves.ended());
  CHECK_FALSE(rests.ended());
  CHECK_FALSE(patient.ended());
}

TEST_CASE("a thread that computes without reports is left alone until it blocks") {
  Watched watched;
  watched->does("makes its plan");
  std::atomic<std::uint64_t> sum = 0;
  const auto until = std::chrono::steady_clock::now() + 4 * timeout;
  while (std::chrono::steady_clock::now() < until) sum += 1;
  CHECK_FALSE(watched.ended());
  CHECK(watched.why().starts_with("rank 1 stands still: it makes its plan, for "));
}

TEST_CASE("a handler that blocks for three timeouts is ended, by the watchdog's thread") {
  Watched watched;
  runtime::AsioLoop loop;
  watched->runs_loop([&] { return loop.heartbeat(); }, [] { return "the last spans"; });
  loop.post([&] {
    std::this_thread::sleep_for(3 * timeout);
    CHECK(watched.ended());
    loop.stop();
  });
  loop.run();
  const std::string why = watched.why();
  CAPTURE(why);
  CHECK(why.starts_with("rank 1: the event loop made no progress for "));
  CHECK(why.ends_with(" s (`timeout`)\nthe last spans"));
}

TEST_CASE("a loop that makes progress, or that the watchdog has left, is not ended") {
  Watched watched;
  runtime::AsioLoop loop;
  watched->runs_loop([&] { return loop.heartbeat(); }, [] { return ""; });
  for (int i = 1; i <= 6; ++i) loop.after(i * timeout / 2, [] { std::this_thread::sleep_for(timeout / 8); });
  loop.after(7 * timeout / 2, [&] { loop.stop(); });
  loop.run();
  watched->rests();
  std::this_thread::sleep_for(3 * timeout);
  CHECK_FALSE(watched.ended());
}

TEST_CASE("the rank that a thread waits for is printed in place of the item, until the next activity") {
  Watched watched;
  watched->does("loads its weights");
  watched->about("h.3");
  watched->waits_for("rank 0, which opens its data");
  CHECK(watched->doing().starts_with("loads its weights: waits for 0."));
  CHECK(watched->doing().ends_with(" s for rank 0, which opens its data"));
  watched->waits_for({});
  CHECK(watched->doing().starts_with("loads its weights: h.3, for "));
  watched->does("plans its run");
  CHECK(watched->doing().starts_with("plans its run, for "));
}

TEST_CASE("progress of the owner is reported to others from its thread, and not more often than requested") {
  int told = 0;
  const std::thread::id owner = std::this_thread::get_id();
  runtime::ThreadWatchdog watch({.timeout = 60s,
                                 .who = "rank 0",
                                 .end = [](const std::string&) {},
                                 .tell =
                                     [&] {
                                       CHECK(std::this_thread::get_id() == owner);
                                       ++told;
                                     },
                                 .tell_every = 1h});
  watch.does("opens its data");
  CHECK(told == 1);
  for (int i = 0; i < 100; ++i) watch.moved();
  std::thread([&] { watch.moved(); }).join();
  CHECK(told == 1);
  watch.does("loads its weights");
  CHECK(told == 2);
}
