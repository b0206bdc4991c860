// Watches a thread that blocks where no event loop turns: while a rank is set up, and while it ends. That thread, the
// owner, says what it does and that it gets on. Where it does not for the timeout, and the system's account of the
// process shows no work either (processor time, bytes read or written, pages fetched), `end` is called: work that is
// slow and moves is left alone, also where nobody counts it.
//
//   BlockingWatch watch({.timeout = 60s, .who = "rank 1", .end = …});
//   watch.does("loads its weights");
//   for (…) watch.about("h.3 of model.safetensors"), read(…);
//   watch.rests();
//
// Time is counted in looks, not by the clock: a process that was stopped and continued has not hung.
#pragma once

#include "runtime/clock.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace ranvier::runtime {

class BlockingWatch {
 public:
  struct Options {
    Duration timeout = std::chrono::seconds(60);
    std::string who;                                  ///< "rank 1 (stage 1, row 0)"
    std::function<void(const std::string& why)> end;  ///< on a thread of the watch, at most once
    std::function<void()> tell;                       ///< on the owner's thread, as it gets on; may be null
    Duration tell_every = std::chrono::seconds(5);    ///< at most, but for what begins
  };

  /// The calling thread is the owner. Nothing is watched before does().
  explicit BlockingWatch(Options options);
  ~BlockingWatch();
  BlockingWatch(const BlockingWatch&) = delete;
  BlockingWatch& operator=(const BlockingWatch&) = delete;

  // The owner's thread.
  /// What it does from now on: "loads its weights". That may stand still for `patience` timeouts.
  void does(std::string what, int patience = 1);
  /// Of that, what comes now: a file, a layer. Counts as getting on.
  void about(std::string part);
  /// Whom it waits for meanwhile: "rank 0, which …"; empty: nobody any more. Counts likewise.
  void waits_for(std::string whom);
  /// Another one watches from now on.
  void rests();

  // Any thread.
  /// A piece of work is done.
  void moved();
  /// That about() has named so far.
  [[nodiscard]] std::uint64_t parts() const noexcept { return parts_; }
  /// "loads its weights: h.3 of model.safetensors, for 1.2 s"; empty while it rests.
  [[nodiscard]] std::string doing() const;

 private:
  struct Account;
  [[nodiscard]] static Account account();
  void look();
  /// Under the mutex: that is so from now on.
  void begin(std::string& text, std::string value);
  [[nodiscard]] std::string text() const;

  const Options options_;
  const std::thread::id owner_;
  std::atomic<std::uint64_t> moves_{0}, parts_{0};
  std::chrono::steady_clock::time_point told_{};  // the owner's
  mutable std::mutex mutex_;
  std::condition_variable over_;
  // Under the mutex.
  std::string what_, part_, whom_;  // what_ empty: it rests
  int patience_ = 1;
  std::chrono::steady_clock::time_point since_{};  // of the innermost
  bool stop_ = false;
  std::thread thread_;  // last: it uses all others
};

}  // namespace ranvier::runtime
