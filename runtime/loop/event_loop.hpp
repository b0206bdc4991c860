// Event loop of a rank. Every event becomes a handler: received message, completed send, reached point of a stream,
// timer, signal. Handlers are short: they start work and return.
//
// Implementations: AsioLoop (real time, one per process) and the loops of a Simulation (virtual time, one per rank).
// Actors use only this interface.
//
// A loop also records its rank's pending local work (pending_work.hpp): after_work() and ends() register the waiting
// handler, so the watchdog can name every wait.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/liveness/pending_work.hpp"

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

namespace ranvier::runtime {

/// Source of events that must be polled: MPI makes progress only if it is called. Loop thread only.
class PollSource {
 public:
  virtual ~PollSource() = default;
  /// Polls once and runs the handlers that are ready; true if there were any.
  virtual bool poll() = 0;
  /// Whether anything is outstanding. A loop without active sources sleeps until it is woken.
  [[nodiscard]] virtual bool active() const noexcept = 0;
};

/// Handler that calls `done` at its call number `times`, which is at least 1.
[[nodiscard]] inline Handler last_of(std::size_t times, Handler done) {
  expect(times > 0, "a handler is the last one of no calls");
  if (times == 1) return done;
  return [left = std::make_shared<std::size_t>(times), done = std::move(done)] {
    if (--*left == 0) done();
  };
}

/// now(): time since the loop was made.
class EventLoop : public Clock {
 public:
  /// Queues `handler`. Handlers posted by one thread run in the order of the posts. Callable from any thread.
  virtual void post(Handler handler) = 0;

  /// Queues `handler` once, after `delay`. In virtual time, a delay of 0 means after all other events of the current
  /// time. Loop thread only.
  virtual void after(Duration delay, Handler handler) = 0;

  /// Adds a source, polled between handlers while it is active. It must outlive the loop's last run. Loop thread
  /// only.
  virtual void add_source(PollSource& source) = 0;

  /// Makes run() return, or throw `error` if there is one. Callable from any thread.
  virtual void stop(std::exception_ptr error = nullptr) = 0;

  /// Queues `handler` once the work queued on `stream` so far is done. Loop thread only.
  void after_work(StreamView stream, const WorkName& name, Handler handler) {
    const auto entry = pending_work_.begin(name, stream.stream(), now(), std::move(handler));
    stream.call_back([this, entry] { post([this, entry] { pending_work_.end(entry)(); }); });
  }
  /// Registers pending local work. The returned function ends it and runs `handler`; call or post it once, on the
  /// loop. Loop thread only.
  [[nodiscard]] Handler ends(const WorkName& name, const ProgressSource& where, Handler handler) {
    const auto entry = pending_work_.begin(name, where, now(), std::move(handler));
    return [this, entry] { pending_work_.end(entry)(); };
  }
  /// Work registered by the two functions above. Loop thread only.
  [[nodiscard]] const PendingWork& pending_work() const noexcept { return pending_work_; }

 private:
  PendingWork pending_work_;
};

}  // namespace ranvier::runtime
