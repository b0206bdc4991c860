// Many ranks in one process under virtual time: a loop and a transport for each, handlers and messages
// delayed by amounts drawn from a seed. The same seed gives the same run, so a failing order can be replayed.
//
//   Simulation simulation(8, {.seed = 42});
//   // for each rank r: actors on simulation.loop(r) and simulation.transport(r), device `inline`
//   simulation.run();   // throws when ranks wait and nothing can happen any more
//
// What a real system keeps in order stays in order: the handlers posted to one loop, the messages between
// two ranks under one tag. Everything else may overtake, completions too. Buffers are used as freely as MPI may:
// a send's bytes are read at some time before it completes (which is before or after its receive was posted),
// a receive's ranges hold noise until it completes; so a buffer used too early or reused shows as a wrong result.
//
// Simulated loops have no poll sources (add_source throws), and handlers are posted by the simulation's own
// thread, hence the `inline` device.
#pragma once

#include "runtime/event_loop.hpp"
#include "runtime/transport.hpp"

#include <cstdint>
#include <memory>

namespace ranvier::runtime {

struct SimulationOptions {
  std::uint64_t seed = 0;
  Duration longest_post_delay = std::chrono::microseconds(50);      ///< of a handler, drawn from [0, this]
  Duration longest_message_delay = std::chrono::microseconds(500);  ///< of a message, likewise
};

class Simulation {
 public:
  Simulation(int ranks, const SimulationOptions& options);
  ~Simulation();

  [[nodiscard]] EventLoop& loop(int rank);
  [[nodiscard]] Transport& transport(int rank);

  /// Runs handlers in the order of virtual time until every loop was stopped; may be called again.
  /// Rethrows what a handler threw or a loop was stopped with. Throws ErrorCode::transport with a list of
  /// the pending operations if some loop was not stopped and nothing is left to happen, or only timers have
  /// for an hour: a deadlock.
  void run();

  [[nodiscard]] std::uint64_t handlers_run() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
