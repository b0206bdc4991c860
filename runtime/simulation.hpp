// Many ranks in one process under virtual time: a loop and a transport for each, handlers and messages
// delayed by amounts drawn from a seed. The same seed gives the same run, so a failing order can be replayed.
//
//   Simulation simulation(8, {.seed = 42});
//   // for each rank r: actors on simulation.loop(r) and simulation.transport(r), device `inline`
//   simulation.run();   // throws when ranks wait and nothing can happen any more
//
// What a real system keeps in order stays in order: the handlers posted to one loop, the messages between
// two ranks under one tag. Everything else may overtake. A send's bytes are read when it is delivered, at a
// time of the simulation's choosing, so a buffer that was reused too early shows as a wrong result.
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

  /// Runs handlers in the order of virtual time until nothing is left or every loop was stopped.
  /// Rethrows what a handler threw or a loop was stopped with. Throws ErrorCode::transport with a list of
  /// the pending operations if some loop was not stopped and nothing is left to happen: a deadlock.
  void run();

  [[nodiscard]] std::uint64_t handlers_run() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
