// Event loop of a process: Boost.Asio's io_context on one thread, with poll sources between handlers.
//
// While a source is active and nothing happens, the loop spins, then yields its core, then sleeps for growing times.
// This keeps ranks that share a core, and kernels that need all cores, from starving. A posted handler ends a sleep
// at once.
#pragma once

#include "runtime/loop/event_loop.hpp"

#include <memory>

namespace ranvier::runtime {

struct IdlePolicy {
  Duration spin = std::chrono::microseconds(20);  ///< time to poll without a pause
  /// Time to poll between sched_yield calls. If a yield shows that another process uses this core, the loop sleeps
  /// instead of yielding for 20 ms.
  Duration yield = std::chrono::milliseconds(5);
  Duration sleep_first = std::chrono::microseconds(20);  ///< first sleep; each further one is twice as long
  Duration sleep_longest = std::chrono::milliseconds(1);
};

class AsioLoop final : public EventLoop {
 public:
  explicit AsioLoop(const IdlePolicy& policy = {});
  ~AsioLoop() override;

  void post(Handler handler) override;
  void after(Duration delay, Handler handler) override;
  [[nodiscard]] Duration now() const override;
  void add_source(PollSource& source) override;
  void stop(std::exception_ptr error = nullptr) override;

  /// Runs handlers on the calling thread until stop(). Rethrows the exception of a handler or of stop(). May be
  /// called again afterwards.
  void run();

  /// Number of loop iterations; grows several times per second while no handler blocks. Callable from any thread.
  [[nodiscard]] std::uint64_t heartbeat() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
