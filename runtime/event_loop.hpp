// Where everything that happens becomes a handler: a message that arrived, a send that completed, a point
// on a stream that was reached, a timer, a signal. Handlers are short: they start work and return.
//
// Two implementations: AsioLoop (real time, one per process) and Simulation (virtual time, one loop per
// simulated rank, seeded order). Actors see this interface only.
//
// A loop also knows what its rank's own work is (own_work.hpp): who waits for the end of some says so here, and so
// nothing can be waited for that nobody knows of.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/own_work.hpp"
#include "runtime/stream.hpp"

#include <exception>
#include <functional>

namespace ranvier::runtime {

/// Something that has to be asked: MPI makes progress only when it is called. Loop thread only.
class PollSource {
 public:
  virtual ~PollSource() = default;
  /// Asks once and runs what became ready; true if something did.
  virtual bool poll() = 0;
  /// Whether anything is outstanding; a loop without any sleeps until it is woken.
  [[nodiscard]] virtual bool active() const noexcept = 0;
};

/// now(): time since the loop was made.
class EventLoop : public Clock {
 public:
  /// Queues `handler`. Handlers posted by one thread run in the order of the posts. Any thread.
  virtual void post(Handler handler) = 0;

  /// Queues `handler` once, `delay` from now; 0: in virtual time after all that happens now. Loop thread only.
  virtual void after(Duration delay, Handler handler) = 0;

  /// Polled between handlers as long as it is active. It must outlive the loop's last run. Loop thread only.
  virtual void add_source(PollSource& source) = 0;

  /// Makes run() return; with an error run() throws it. Any thread.
  virtual void stop(std::exception_ptr error = nullptr) = 0;

  /// Queues `handler` once what `stream` has queued so far is done. Loop thread only.
  void after_work(StreamView stream, const WorkName& name, Handler handler) {
    const std::size_t entry = own_work_.begin(name, stream.stream(), now(), std::move(handler));
    stream.call_back([this, entry] { post([this, entry] { own_work_.end(entry)(); }); });
  }
  /// What runs `handler` and ends the work that it waits for: to be called or posted once, on the loop. Loop thread
  /// only.
  [[nodiscard]] Handler ends(const WorkName& name, const Workplace& where, Handler handler) {
    const std::size_t entry = own_work_.begin(name, where, now(), std::move(handler));
    return [this, entry] { own_work_.end(entry)(); };
  }
  /// What was begun by the two above. Loop thread only.
  [[nodiscard]] const OwnWork& own_work() const noexcept { return own_work_; }

 private:
  OwnWork own_work_;
};

}  // namespace ranvier::runtime
