// The event loop of a process: Boost.Asio's io_context on one thread, with poll sources between handlers.
//
// While a source is active and nothing happens the loop first spins, then yields its core, then sleeps for
// growing times: several ranks that share a core, or a rank whose kernels need all cores, must not starve
// each other. A posted handler ends a sleep at once.
#pragma once

#include "runtime/event_loop.hpp"

#include <memory>

namespace ranvier::runtime {

struct IdlePolicy {
  Duration spin = std::chrono::microseconds(20);  ///< ask again at once for this long
  /// Then between sched_yield calls; after one that shows that somebody else computes on this core, none for 20 ms.
  Duration yield = std::chrono::milliseconds(5);
  Duration sleep_first = std::chrono::microseconds(20);  ///< then asleep, doubling
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

  /// Runs handlers on the calling thread until stop(). Rethrows what a handler threw or stop() was given.
  /// May be called again afterwards.
  void run();

  /// Times the loop has gone round; counts on, several times a second, while no handler blocks. Any thread.
  [[nodiscard]] std::uint64_t heartbeat() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
