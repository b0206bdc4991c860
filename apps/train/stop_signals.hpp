// SIGINT, SIGTERM, SIGUSR1 (which mpirun passes on) and SIGHUP, unless it is ignored, as under nohup. The first one
// asks the run to end after its step and is acknowledged at once, by one rank. A second one ends the process at once,
// with what it was waiting for. SIGUSR2 stops nothing: each rank that gets it says what all of its parts do and wait
// for.
//
// They are heard once the flags are read; before that they end the process as ever. What comes before a run trains, or
// between two runs, is a wish that is kept: asked() is true, and the next attach() passes it on.
//
// A thread of its own takes them, so that they are heard when the event loop stands still. Whoever stops a job
// often sends more than one signal to a process (a scheduler to mpirun and to its ranks): those that come within a
// second of the first one are the same request.
#pragma once

#include "runtime/event_loop.hpp"
#include "runtime/transport.hpp"

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
    std::function<std::string(int rank)> describe;  ///< any thread
    runtime::Duration same_request = std::chrono::seconds(1);
    /// How long the loop may take to answer before it counts as one that stands still.
    runtime::Duration loop_answers_within = std::chrono::seconds(2);
    std::function<void(const std::string& text)> say;  ///< any thread
    /// Any thread: the run was asked to end, by "SIGTERM at rank 0 (stage 0, row 0)", and when it will have.
    std::function<void(const std::string& cause, const std::string& expected)> stopping = {};
    std::function<void(int status)> end;  ///< any thread; ends the process
  };

  /// A run that trains, whose loop turns.
  struct Listener {
    runtime::EventLoop* loop = nullptr;
    runtime::Transport* transport = nullptr;
    std::function<void()> request_stop;       ///< on the loop
    std::function<std::string()> expected;    ///< any thread: when the run will have ended, and what it saves
    std::function<std::string()> waits_for;   ///< on the loop: "has nothing to do"
    std::function<std::string()> report;      ///< on the loop: lines, about all parts
    std::function<std::string()> last_spans;  ///< any thread: the same where the loop does not move
  };

  /// One at a time; before, signals do what they did and afterwards again.
  StopSignals(int rank, Options options);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From now on until detach(), after which nothing of it is used. All ranks, on the loop's thread.
  void attach(Listener listener);
  void detach();
  /// Whether this rank was ever asked to stop. Any thread.
  [[nodiscard]] bool asked() const noexcept { return asked_ != 0; }

 private:
  struct Attached;  // with handlers that loop and transport may still hold

  void listen(int rank);
  void tell_rank_0();
  void hear();
  void first(int signal);
  void again(int signal);
  void report();
  /// Runs `what` on the loop; false if the loop did not in time, or there is none.
  bool on_loop(std::function<void()> what);
  void acknowledge(int signal, int rank, const std::string& expected, const char* remark = "");

  Options options_;
  int rank_;
  std::array<int, 2> pipe_{-1, -1};
  std::vector<struct sigaction> before_;
  std::atomic<int> asked_{0};  // the first signal
  std::atomic<bool> acknowledged_{false};
  std::atomic<bool> detaching_{false};
  std::mutex mutex_;                    // the thread holds it while it uses what is attached
  std::shared_ptr<Attached> attached_;  // null: nothing is
  std::thread thread_;
};

}  // namespace ranvier::apps
