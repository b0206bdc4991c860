// Handler of SIGINT, SIGTERM, SIGUSR1 (which mpirun forwards) and SIGHUP (unless it is ignored, as under nohup).
// The first signal stops the run after its step; one rank prints that at once. A second one ends the process and prints
// the pending wait. Signals within a second of the first count as one, since schedulers signal mpirun and its ranks.
// SIGUSR2 prints the state and pending waits of all actors of the rank. A separate thread handles signals, so they work
// while the event loop is blocked. A signal before training or between runs is pending until attach().
#pragma once

#include "runtime/loop/event_loop.hpp"
#include "runtime/transport/transport.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ranvier::apps {

class StopSignals {
 public:
  struct Options {
    std::function<std::string(int rank)> describe;  ///< text for a rank: "rank 0 (…)"; callable from any thread
    /// Current blocking work, as in "loads its states, for 1.2 s"; empty or null if none is known. Callable from any
    /// thread.
    std::function<std::string()> blocked = nullptr;
    runtime::Duration same_request = std::chrono::seconds(1);  ///< later signals count as a second one
    /// Time without a response after which the event loop counts as blocked.
    runtime::Duration loop_answers_within = std::chrono::seconds(2);
    std::function<void(const std::string& text)> print;  ///< prints text; callable from any thread
    /// Called when a stop is requested: cause "SIGTERM at rank 0 (stage 0, row 0)", and the expected end. Callable from
    /// any thread.
    std::function<void(const std::string& cause, const std::string& expected)> stopping = {};
    std::function<void(int status)> end;  ///< ends the process; callable from any thread
  };

  /// Interface of a training run. Its event loop is running.
  struct Listener {
    runtime::EventLoop* loop = nullptr;
    runtime::Transport* transport = nullptr;
    std::function<void()> request_stop;       ///< loop thread
    std::function<std::string()> expected;    ///< expected end of the run and its saves; loop thread
    std::function<std::string()> waits_for;   ///< pending wait, as in "has nothing to do"; loop thread
    std::function<std::string()> report;      ///< lines about all actors; loop thread
    std::function<std::string()> last_spans;  ///< last trace spans, for a blocked loop; callable from any thread
  };

  /// Installs the handlers; the destructor restores the previous ones. One object at a time.
  StopSignals(int rank, Options options);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Uses `listener` until detach(). Passes on a pending stop. All ranks call it, on the loop thread.
  void attach(Listener listener);
  void detach();
  /// Whether this rank ever got a stop signal. Callable from any thread.
  [[nodiscard]] bool asked() const noexcept { return asked_ != 0; }

 private:
  struct Attached;  // shared with handlers that loop and transport may still hold

  void listen(int rank);
  void tell_rank_0();
  void hear();
  void first(int signal);
  void again(int signal);
  [[nodiscard]] std::string blocked() const { return options_.blocked ? options_.blocked() : std::string(); }
  void report();
  /// Runs `what` on the loop. Returns false if the loop does not run it in time, or is not attached.
  bool on_loop(std::function<void()> what);
  void acknowledge(int signal, int rank, const std::string& expected, const char* remark = "");

  Options options_;
  int rank_;
  std::array<int, 2> pipe_{-1, -1};
  std::vector<struct sigaction> before_;
  std::atomic<int> asked_{0};  // number of the first signal
  std::atomic<bool> acknowledged_{false};
  std::atomic<bool> detaching_{false};
  std::mutex mutex_;                    // protects attached_; held by the thread while it uses it
  std::shared_ptr<Attached> attached_;  // null: no run is attached
  std::thread thread_;
};

}  // namespace ranvier::apps
