#include "runtime/loop/asio_loop.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace ranvier::runtime {

namespace {

using RealClock = std::chrono::steady_clock;

/// Shortest time between two timer checks while sources are busy: a system call per round would cost more than
/// polling MPI.
constexpr Duration kernel_poll_interval = std::chrono::microseconds(20);

/// A yield of at least this length means that another process uses this core: no yields for crowded_time.
constexpr Duration slow_yield = std::chrono::microseconds(500);
constexpr Duration crowded_time = std::chrono::milliseconds(20);

/// Longest sleep of a loop without active sources, so that its heartbeat continues.
constexpr Duration longest_block = std::chrono::milliseconds(50);

}  // namespace

struct AsioLoop::State {
  explicit State(const IdlePolicy& idle_policy) : policy(idle_policy) {}

  // Constant.
  const IdlePolicy policy;
  const RealClock::time_point start = RealClock::now();

  // Any thread; `mutex` guards inbox and error.
  std::mutex mutex;
  std::condition_variable wake_up;
  std::vector<Handler> inbox;
  std::exception_ptr error;
  std::atomic<bool> posted = false;
  std::atomic<bool> stopped = false;
  std::atomic<bool> blocked = false;
  std::atomic<std::uint64_t> rounds = 0;
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work = make_work_guard(context);

  // Loop thread only.
  std::deque<Handler> ready;  ///< taken from the inbox, in order
  std::vector<PollSource*> sources;
  RealClock::time_point kernel_polled{};
  RealClock::time_point idle_since{};
  Duration next_sleep{};
  bool idle = false;
  RealClock::time_point crowded_until{};

  /// Ends a sleep. Call it after `posted` or `stopped` was set under the lock.
  void wake() {
    wake_up.notify_one();
    if (blocked.exchange(false)) boost::asio::post(context, [] {});
  }

  bool run_posted() {
    if (posted.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex);
      posted.store(false, std::memory_order_relaxed);
      std::move(inbox.begin(), inbox.end(), std::back_inserter(ready));
      inbox.clear();
    }
    if (ready.empty()) return false;
    for (std::size_t left = ready.size(); left > 0 && !stopped; --left) {
      const Handler handler = std::move(ready.front());
      ready.pop_front();
      handler();
    }
    return true;
  }

  bool poll_sources() {
    bool progress = false;
    for (std::size_t i = 0; i < sources.size(); ++i) progress |= sources[i]->active() && sources[i]->poll();
    return progress;
  }

  bool poll_kernel(RealClock::time_point time) {
    if (time - kernel_polled < kernel_poll_interval) return false;
    kernel_polled = time;
    return context.poll() > 0;
  }

  [[nodiscard]] bool waits_for_source() const {
    return std::any_of(sources.begin(), sources.end(), [](const PollSource* source) { return source->active(); });
  }

  void rest(RealClock::time_point time) {
    if (!waits_for_source()) return block();
    if (!std::exchange(idle, true)) {
      idle_since = time;
      next_sleep = policy.sleep_first;
    }
    const Duration waited = time - idle_since;
    if (waited < policy.spin) return;
    if (waited < policy.spin + policy.yield && time > crowded_until) {
      sched_yield();
      const auto back = RealClock::now();
      if (back - time > slow_yield) crowded_until = back + crowded_time;
      return;
    }
    sleep(next_sleep);
    next_sleep = std::min(2 * next_sleep, policy.sleep_longest);
  }

  /// Waits for a post or a timer.
  void block() {
    blocked = true;
    if (!posted && !stopped) context.run_one_for(longest_block);
    blocked = false;
  }

  /// Waits for a post, at most for `time`. Timers are not checked.
  void sleep(Duration time) {
    std::unique_lock lock(mutex);
    wake_up.wait_for(lock, time, [this] { return posted || stopped; });
  }
};

AsioLoop::AsioLoop(const IdlePolicy& policy) : state_(std::make_unique<State>(policy)) {}
AsioLoop::~AsioLoop() = default;

void AsioLoop::run() {
  prctl(PR_SET_TIMERSLACK, 1);  // timer slack in nanoseconds; with the default, sleeps end 50 µs late
  State& state = *state_;
  while (!state.stopped) {
    state.rounds.store(state.rounds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const auto time = RealClock::now();
    bool progress = state.run_posted();
    progress |= state.poll_sources();
    progress |= state.poll_kernel(time);
    if (progress) {
      state.idle = false;
    } else {
      state.rest(time);
    }
  }
  const std::lock_guard lock(state.mutex);
  state.stopped = false;
  if (state.error) std::rethrow_exception(std::exchange(state.error, nullptr));
}

void AsioLoop::post(Handler handler) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->inbox.push_back(std::move(handler));
    state_->posted = true;
  }
  state_->wake();
}

void AsioLoop::after(Duration delay, Handler handler) {
  auto timer = std::make_unique<boost::asio::steady_timer>(state_->context, delay);
  auto& started = *timer;
  started.async_wait(
      [timer = std::move(timer), handler = std::move(handler)](const boost::system::error_code& code) {
        if (!code) handler();
      });
}

Duration AsioLoop::now() const { return RealClock::now() - state_->start; }

void AsioLoop::add_source(PollSource& source) { state_->sources.push_back(&source); }

void AsioLoop::stop(std::exception_ptr error) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->error) state_->error = std::move(error);
    state_->stopped = true;
  }
  state_->wake();
}

std::uint64_t AsioLoop::heartbeat() const noexcept { return state_->rounds.load(std::memory_order_relaxed); }

}  // namespace ranvier::runtime
