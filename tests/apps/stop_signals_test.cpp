// Signals in one process: requests to the loop, and behavior if the loop is blocked.
#include "apps/job/stop_signals.hpp"

#include "apps/train/step_clock.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <csignal>
#include <future>
#include <mutex>
#include <thread>

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

/// One rank whose loop runs on a thread, with signals that are handled but do not end the process.
class Rank {
 public:
  explicit Rank(runtime::Duration same_request = 0s, bool trains = true)
      : signals_(0, {.describe = [](int rank) { return "rank " + std::to_string(rank); },
                     .blocked = [this] { return std::string(blocked); },
                     .same_request = same_request,
                     .loop_answers_within = 300ms,
                     .print =
                         [this](const std::string& text) {
                           const std::lock_guard lock(mutex_);
                           said_ += text;
                         },
                     .stopping =
                         [this](const std::string& cause, const std::string& expected) {
                           const std::lock_guard lock(mutex_);
                           told_ += cause + ": " + expected;
                         },
                     .end = [this](int value) { status = value; }}) {
    if (trains) train();
  }
  ~Rank() {
    if (!thread_.joinable()) return;
    loop_.stop();
    thread_.join();
    signals_.detach();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void train() {
    signals_.attach({.loop = &loop_,
                     .transport = &simulation_.transport(0),
                     .request_stop = [this] { ++stops; },
                     .expected = [] { return "the run ends soon"; },
                     .waits_for = [] { return "waits for a test"; }});
    thread_ = std::thread([this] { loop_.run(); });
  }
  [[nodiscard]] const apps::StopSignals& signals() const { return signals_; }

  /// Blocks the loop until the promise is fulfilled.
  void block(std::promise<void>& until) {
    loop_.post([&until] { until.get_future().wait(); });
  }

  [[nodiscard]] bool says(const std::string& words) {
    return within_seconds([&] {
      const std::lock_guard lock(mutex_);
      return said_.find(words) != std::string::npos;
    });
  }
  [[nodiscard]] std::string told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  [[nodiscard]] std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  template <typename Condition>
  [[nodiscard]] static bool within_seconds(const Condition& condition) {
    for (int i = 0; i < 3000 && !condition(); ++i) std::this_thread::sleep_for(10ms);
    return condition();
  }

  std::atomic<const char*> blocked{""};
  std::atomic<int> stops{0};
  std::atomic<int> status{0};

 private:
  runtime::AsioLoop loop_;
  runtime::Simulation simulation_{1, {}};
  std::mutex mutex_;
  std::string said_, told_;
  apps::StopSignals signals_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("the first signal is acknowledged and requests a stop, the second ends the process") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Rank rank;
    std::raise(signal);
    CHECK(rank.says("at rank 0: the run ends soon; another signal ends it at once"));
    CHECK(Rank::within_seconds([&] { return rank.stops == 1; }));
    CHECK(rank.status == 0);
    std::raise(signal);
    CHECK(rank.says("rank 0 waits for a test\n"));
    CHECK(Rank::within_seconds([&] { return rank.status == 128 + signal; }));
    CHECK(rank.stops == 1);
    CHECK(rank.told().ends_with(" at rank 0: the run ends soon"));  // only once
    CHECK(rank.told().starts_with("SIG"));
  }
}

TEST_CASE("signals that arrive together are one request") {
  Rank rank(1h);
  std::raise(SIGTERM);
  std::raise(SIGINT);
  CHECK(rank.says("SIGTERM at rank 0"));
  CHECK(Rank::within_seconds([&] { return rank.stops == 1; }));
  std::raise(SIGTERM);
  std::this_thread::sleep_for(50ms);
  CHECK(rank.status == 0);
  check_lacks(rank.said(), {"error"});
}

TEST_CASE("signals are handled while the loop is blocked") {
  Rank rank;
  std::promise<void> go_on;
  rank.block(go_on);
  std::raise(SIGTERM);
  CHECK(rank.says("SIGTERM at rank 0, whose event loop is blocked: the run ends after its current step"));
  std::raise(SIGTERM);
  CHECK(rank.says("rank 0 has a blocked event loop\n"));
  CHECK(Rank::within_seconds([&] { return rank.status == 128 + SIGTERM; }));
  go_on.set_value();
}

TEST_CASE("a signal before training starts is kept") {
  Rank rank(0s, false);
  CHECK(!rank.signals().asked());
  std::raise(SIGUSR2);
  CHECK(rank.says("rank 0 is not training\n"));
  CHECK(!rank.signals().asked());
  std::raise(SIGUSR1);
  CHECK(rank.says("SIGUSR1 at rank 0: the run ends before its next step; another signal ends it at once"));
  CHECK(rank.signals().asked());
  rank.train();
  CHECK(rank.stops == 1);
  std::raise(SIGUSR1);
  CHECK(rank.says("rank 0 waits for a test\n"));
}

TEST_CASE("a second signal ends a run that does not train yet") {
  Rank rank(0s, false);
  std::raise(SIGTERM);
  CHECK(rank.says("SIGTERM at rank 0"));
  std::raise(SIGTERM);
  CHECK(rank.says("ended by a second SIGTERM, unsaved work is lost: rank 0 is not training\n"));
  CHECK(Rank::within_seconds([&] { return rank.status == 128 + SIGTERM; }));
}

TEST_CASE("a rank in startup or shutdown reports its activity") {
  Rank rank(0s, false);
  rank.blocked = "loads its states, for 1.0 s";
  std::raise(SIGUSR2);
  CHECK(rank.says("rank 0 loads its states, for 1.0 s\n"));
  rank.train();
  rank.blocked = "ends, for 2.0 s";
  std::raise(SIGUSR2);
  CHECK(rank.says("rank 0 ends, for 2.0 s\n"));
  rank.blocked = "";
  std::raise(SIGTERM);
  CHECK(rank.says("SIGTERM at rank 0"));
  rank.blocked = "ends, for 3.0 s";
  std::raise(SIGTERM);
  CHECK(rank.says("ended by a second SIGTERM, unsaved work is lost: rank 0 ends, for 3.0 s\n"));
  CHECK(Rank::within_seconds([&] { return rank.status == 128 + SIGTERM; }));
}

TEST_CASE("the expected remaining time of a step follows from earlier steps") {
  apps::StepClock clock;
  const auto zero = apps::StepClock::Clock::now();
  clock.start(0, zero);
  CHECK(clock.expectation(zero + 3s) == "the first, which has taken 3 s");
  for (int step = 1; step <= 3; ++step) clock.done(step, zero + step * 10s);
  CHECK(clock.step() == 4);
  CHECK(clock.expectation(zero + 32s) == "in about 8 s");
  CHECK(clock.expectation(zero + 40s) == "within about a second");
  CHECK(clock.expectation(zero + 90s) == "which has taken 60 s (median step: 10 s)");
  clock.start(40, zero);
  CHECK(clock.step() == 41);
}
