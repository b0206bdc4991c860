#include "runtime/asio_loop.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace ranvier::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// Timers and signals are looked after this often while sources are busy: asking the kernel each time round
/// would cost more than asking MPI.
constexpr Duration kernel_poll_interval = std::chrono::microseconds(20);

/// Whether other threads of this process compute is asked over windows of this length.
constexpr Duration computing_window = std::chrono::microseconds(100);

/// The longest sleep of a loop that waits for nothing, so that its heartbeat goes on.
constexpr Duration longest_block = std::chrono::milliseconds(50);

/// CPU time that the other threads of this process have used.
Duration computed_elsewhere() {
  timespec process{}, thread{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &thread);
  return std::chrono::seconds(process.tv_sec - thread.tv_sec) +
         std::chrono::nanoseconds(process.tv_nsec - thread.tv_nsec);
}

}  // namespace

struct AsioLoop::State {
  explicit State(const IdlePolicy& idle_policy) : policy(idle_policy), sleep_timer(context), start(Clock::now()) {}

  // Constant.
  const IdlePolicy policy;

  // Any thread; `mutex` guards inbox and error.
  std::mutex mutex;
  std::vector<Handler> inbox;
  std::exception_ptr error;
  std::atomic<bool> posted = false;
  std::atomic<bool> stopped = false;
  std::atomic<bool> asleep = false;
  std::atomic<std::uint64_t> rounds = 0;
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work = make_work_guard(context);

  // The loop's thread.
  std::deque<Handler> ready;  ///< taken from the inbox, in order
  std::vector<PollSource*> sources;
  boost::asio::steady_timer sleep_timer;
  bool sleep_timer_runs = false;
  Clock::time_point start;
  Clock::time_point kernel_polled{};
  Clock::time_point idle_since{};
  Duration next_sleep{};
  bool idle = false;
  Clock::time_point window_start{};
  Duration window_used{};
  bool computes = false;
  std::size_t wake_ups = 0;  ///< handlers of the context that only ended a sleep
  std::function<void(int)> signal_handler;
  std::unique_ptr<boost::asio::signal_set> signals;

  void wake() {
    if (asleep.exchange(false)) boost::asio::post(context, [this] { ++wake_ups; });
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

  bool poll_kernel(Clock::time_point time) {
    if (time - kernel_polled < kernel_poll_interval) return false;
    kernel_polled = time;
    return count_progress(context.poll());
  }

  bool count_progress(std::size_t handlers) { return handlers > std::exchange(wake_ups, 0); }

  [[nodiscard]] bool waits_for_source() const {
    return std::any_of(sources.begin(), sources.end(), [](const PollSource* source) { return source->active(); });
  }

  void rest(Clock::time_point time) {
    if (!waits_for_source()) return block();
    if (!std::exchange(idle, true)) {
      idle_since = time;
      window_start = {};
      computes = false;
      next_sleep = policy.sleep_first;
    }
    const Duration waited = time - idle_since;
    if (waited < policy.spin) return;
    if (waited < policy.spin + policy.yield && !process_computes(time)) {
      sched_yield();
      return;
    }
    sleep(next_sleep);
    next_sleep = std::min(2 * next_sleep, policy.sleep_longest);
  }

  /// Whether other threads of this process used more than half a core during a window since the loop is idle.
  /// They are better off without a loop that looks to the scheduler as if it had work, too.
  bool process_computes(Clock::time_point time) {
    if (computes || time - window_start < computing_window) return computes;
    const Duration used = computed_elsewhere();
    computes = window_start != Clock::time_point{} && used - window_used > (time - window_start) / 2;
    window_start = time;
    window_used = used;
    return computes;
  }

  /// Returns when something was posted, or at a timer or a signal.
  void block() {
    asleep = true;
    if (!posted && !stopped) count_progress(context.run_one_for(longest_block));
    asleep = false;
  }

  /// Likewise, or after `time`: by a timer, which is exact to the microsecond where run_one_for() is to the
  /// millisecond. A timer left over from a sleep that ended early serves the next one if it is soon enough.
  void sleep(Duration time) {
    if (!sleep_timer_runs || sleep_timer.expiry() > Clock::now() + time) {
      sleep_timer_runs = true;
      sleep_timer.expires_after(time);
      sleep_timer.async_wait([this](const boost::system::error_code& code) {
        if (!code) sleep_timer_runs = false;
        ++wake_ups;
      });
    }
    asleep = true;
    if (!posted && !stopped && count_progress(context.run_one())) idle = false;
    asleep = false;
  }
};

AsioLoop::AsioLoop(const IdlePolicy& policy) : state_(std::make_unique<State>(policy)) {}
AsioLoop::~AsioLoop() = default;

void AsioLoop::run() {
  prctl(PR_SET_TIMERSLACK, 1);  // nanoseconds; sleeps would end 50 µs late
  State& state = *state_;
  while (!state.stopped) {
    state.rounds.store(state.rounds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const auto time = Clock::now();
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
  }
  state_->posted = true;
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

Duration AsioLoop::now() const { return Clock::now() - state_->start; }

void AsioLoop::add_source(PollSource& source) { state_->sources.push_back(&source); }

void AsioLoop::stop(std::exception_ptr error) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->error) state_->error = std::move(error);
  }
  state_->stopped = true;
  state_->wake();
}

void AsioLoop::on_signals(std::function<void(int signal)> handler) {
  State& state = *state_;
  state.signal_handler = std::move(handler);
  if (state.signals) return;
  state.signals = std::make_unique<boost::asio::signal_set>(state.context, SIGINT, SIGTERM, SIGUSR1);
  struct Wait {
    State* state;
    void operator()(const boost::system::error_code& code, int signal) const {
      if (code) return;
      state->signals->async_wait(*this);
      state->signal_handler(signal);
    }
  };
  state.signals->async_wait(Wait{&state});
}

std::uint64_t AsioLoop::heartbeat() const noexcept { return state_->rounds.load(std::memory_order_relaxed); }

}  // namespace ranvier::runtime
