// SIGINT, SIGTERM and SIGUSR1 (which mpirun passes on). The first one asks the run to end after its step and is
// acknowledged at once, by one rank. A second one ends the process at once, with what it was waiting for. SIGUSR2 stops
// nothing: each rank that gets it says what all of its parts do and wait for.
//
// A thread of its own takes them, so that they are heard when the event loop stands still. Whoever stops a job
// often sends more than one signal to a process (a scheduler to mpirun and to its ranks): those that come within a
// second of the first one are the same request.
#pragma once

#include "runtime/event_loop.hpp"
#include "runtime/transport.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace ranvier::apps {

class StopSignals {
 public:
  struct Options {
    std::function<void()> request_stop;       ///< on the loop
    std::function<std::string()> expected;    ///< any thread: when the run will have ended, and what it saves
    std::function<std::string()> waits_for;   ///< on the loop: "has nothing to do"
    std::function<std::string()> report;      ///< on the loop: lines, about all parts
    std::function<std::string()> last_spans;  ///< any thread: the same where the loop does not move
    std::function<std::string(int rank)> describe;
    runtime::Duration same_request = std::chrono::seconds(1);
    /// How long the loop may take to answer before it counts as one that stands still.
    runtime::Duration loop_answers_within = std::chrono::seconds(2);
    std::function<void(const std::string& text)> say;  ///< any thread
    std::function<void(int status)> end;               ///< any thread; ends the process
  };

  /// One at a time; before, signals do what they did and afterwards again. Loop and transport outlive it. Loop
  /// thread.
  StopSignals(runtime::EventLoop& loop, runtime::Transport& transport, Options options);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct Shared;  // with handlers that loop and transport may still hold

  void listen(int rank);
  void hear();
  void first(int signal);
  void again(int signal);
  void report();
  /// Runs `what` on the loop; false if the loop did not in time.
  bool on_loop(std::function<void()> what);
  void acknowledge(int signal, int rank, const char* remark = "");

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  Options options_;
  int rank_;
  std::atomic<bool> acknowledged_{false};
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace ranvier::apps
