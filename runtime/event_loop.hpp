// Where everything that happens becomes a handler: a message that arrived, a send that completed, a point
// on a stream that was reached, a timer, a signal. Handlers are short: they start work and return.
//
// Two implementations: AsioLoop (real time, one per process) and Simulation (virtual time, one loop per
// simulated rank, seeded order). Actors see this interface only.
#pragma once

#include <chrono>
#include <exception>
#include <functional>

namespace ranvier::runtime {

using Handler = std::function<void()>;
using Duration = std::chrono::nanoseconds;

/// Something that has to be asked: MPI makes progress only when it is called. Loop thread only.
class PollSource {
 public:
  virtual ~PollSource() = default;
  /// Asks once and runs what became ready; true if something did.
  virtual bool poll() = 0;
  /// Whether anything is outstanding; a loop without any sleeps until it is woken.
  [[nodiscard]] virtual bool active() const noexcept = 0;
};

class EventLoop {
 public:
  virtual ~EventLoop() = default;

  /// Queues `handler`. Handlers posted by one thread run in the order of the posts. Any thread.
  virtual void post(Handler handler) = 0;

  /// Queues `handler` once, `delay` from now. Loop thread only.
  virtual void after(Duration delay, Handler handler) = 0;

  /// Time since the loop was made. Loop thread only.
  [[nodiscard]] virtual Duration now() const = 0;

  /// Polled between handlers as long as it is active. It must outlive the loop's last run. Loop thread only.
  virtual void add_source(PollSource& source) = 0;

  /// Makes run() return; with an error run() throws it. Any thread.
  virtual void stop(std::exception_ptr error = nullptr) = 0;
};

}  // namespace ranvier::runtime
