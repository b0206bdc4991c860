// Simulation of many ranks in one process under virtual time: a loop and a transport per rank, with random delays
// from a seed. The same seed gives the same run, so a failing order can be replayed. One thread; use it with the
// `inline` device.
//
//   Simulation simulation(8, {.seed = 42});
//   // for each rank r: actors on simulation.loop(r) and simulation.transport(r), device `inline`
//   simulation.run();   // throws if ranks wait and no event is left
#pragma once

#include "runtime/loop/event_loop.hpp"
#include "runtime/transport/transport.hpp"

#include <cstdint>
#include <memory>

namespace ranvier::runtime {

struct SimulationOptions {
  std::uint64_t seed = 0;
  Duration longest_post_delay = std::chrono::microseconds(50);      ///< for a handler
  Duration longest_message_delay = std::chrono::microseconds(500);  ///< for a message
};

/// Handlers posted to one loop stay in order, and so do messages between two ranks under one tag. Everything else may
/// overtake, completions included. Buffers are used as freely as MPI may use them. The bytes of a send are read at any
/// time before it completes. The ranges of a receive hold noise until it completes, so a buffer used too early
/// shows as a wrong result. Loops have no poll sources: add_source() throws.
class Simulation {
 public:
  Simulation(int ranks, const SimulationOptions& options);
  ~Simulation();

  [[nodiscard]] EventLoop& loop(int rank);
  [[nodiscard]] Transport& transport(int rank);

  /// Runs handlers in the order of virtual time until every loop was stopped; may be called again. Rethrows the
  /// exception of a handler or of stop(). Throws ErrorCode::transport with the pending operations on a deadlock: no
  /// event is left, or only timers ran for an hour.
  void run();

  [[nodiscard]] std::uint64_t handlers_run() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
