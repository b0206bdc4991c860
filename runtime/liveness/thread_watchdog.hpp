// Watchdog of a rank's main thread, on a thread of its own. It calls `end` if, for the timeout, the thread blocks:
//
//   outside of the loop   it reports no progress, and the process does no work: CPU time, bytes read or written, major
//                         page faults
//   in the loop           a handler does not return
//
//   ThreadWatchdog watch({.timeout = 60s, .who = "rank 1", .end = …});
//   watch.does("loads its weights");
//   for (…) watch.about("h.3 of model.safetensors"), read(…);
//   watch.runs_loop([&] { return loop.heartbeat(); }, …);
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/liveness/time_limits.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace ranvier::runtime {

class ThreadWatchdog {
 public:
  struct Options {
    Duration timeout = std::chrono::seconds(60);
    std::string who;                                  ///< "rank 1 (stage 1, row 0)"
    std::function<void(const std::string& why)> end;  ///< called on the watch's thread, at most once
    std::function<void()> tell;                       ///< called on the owner's thread at progress; may be null
    /// Shortest time between two calls of `tell`, unless a new activity begins.
    Duration tell_every = std::chrono::seconds(5);
  };

  /// The calling thread is the owner. Watching starts at does().
  explicit ThreadWatchdog(Options options);
  ~ThreadWatchdog();
  ThreadWatchdog(const ThreadWatchdog&) = delete;
  ThreadWatchdog& operator=(const ThreadWatchdog&) = delete;

  // The owner's thread.
  /// Starts an activity: "loads its weights". It may show no progress for `patience` timeouts.
  void does(std::string what, int patience = 1);
  /// Sets the current item of the activity: a file, a layer. Counts as progress.
  void about(std::string part);
  /// Sets the peer that the owner waits for: "rank 0, which …"; empty: it waits for no rank. Counts as progress.
  void waits_for(std::string whom);
  /// Watches an event loop until does() or rests(): `heartbeat` grows with its iterations; `last_spans` ends the
  /// message. Both are callable from any thread.
  void runs_loop(std::function<std::uint64_t()> heartbeat, std::function<std::string()> last_spans);
  /// Stops watching until the next does().
  void rests();

  // Callable from any thread.
  /// Reports progress: one piece of work is done.
  void moved();
  /// Current activity: "loads its weights: h.3 of model.safetensors, for 1.2 s"; empty after runs_loop() and rests().
  [[nodiscard]] std::string doing() const;

 private:
  void look();
  /// Sets `text` and the start time. Holds the mutex.
  void begin(std::string& text, std::string value);
  [[nodiscard]] std::string text() const;

  const Options options_;
  const std::thread::id owner_;
  std::atomic<std::uint64_t> moves_{0};
  std::chrono::steady_clock::time_point told_{};  // last call of `tell`; owner's thread only
  mutable std::mutex mutex_;
  std::condition_variable over_;
  // Guarded by the mutex.
  std::string what_, part_, whom_;            // what_ empty: no activity is watched
  std::function<std::uint64_t()> heartbeat_;  // null: no loop is watched
  std::function<std::string()> last_spans_;
  QuietTime quiet_;  // restarts with each activity or loop
  int patience_ = 1;
  std::chrono::steady_clock::time_point since_{};  // start of the innermost entry
  bool stop_ = false;
  std::thread thread_;  // last member: it uses all others
};

}  // namespace ranvier::runtime
