// Simulation of many ranks in one process under virtual time: a loop and a transport per rank. Delays are drawn from a
// seed, to find ordering bugs (with the `inline` device), or computed from a cluster's links, cores and files, to
// predict the duration of a real run (with phantom devices on time()). Deterministic. One thread.
//
//   Simulation simulation(8, {.seed = 42});                          // drawn
//   Simulation cluster({.node_of = {0, 0, 1, 1}, .links = links});   // computed
//   // for each rank r: actors on simulation.loop(r) and simulation.transport(r)
//   simulation.run();   // throws if ranks wait and no event is left
#pragma once

#include "runtime/loop/event_loop.hpp"
#include "runtime/machine/machine_profile.hpp"
#include "runtime/simulation/phantom_device.hpp"
#include "runtime/simulation/virtual_cores.hpp"
#include "runtime/simulation/virtual_disk.hpp"
#include "runtime/simulation/virtual_network.hpp"
#include "runtime/simulation/virtual_time.hpp"
#include "runtime/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ranvier::runtime {

/// Handlers posted to one loop stay in order, and so do messages between two ranks under one tag. Everything else may
/// overtake, completions included. Buffers are used as freely as MPI may use them. The bytes of a send are read at any
/// time before it completes. The ranges of a receive hold noise until it completes, so a buffer used too early
/// shows as a wrong result.
struct DrawnDelays {
  std::uint64_t seed = 0;                                           ///< a failing order can be replayed with it
  Duration longest_post_delay = std::chrono::microseconds(50);      ///< for a handler
  Duration longest_message_delay = std::chrono::microseconds(500);  ///< for a message
};

/// Messages of activations, gradients, collectives and shards have a size but no content; all other messages arrive as
/// they were sent. Short messages leave when they are sent, longer ones once both ends are ready. A loop runs one
/// handler at a time.
struct ComputedDelays {
  std::vector<int> node_of;  ///< node of each rank, starting at 0
  Links links = {};
  VirtualCores::Options cores = {};     ///< cores per node
  VirtualDisk::Rates files = {};        ///< per node
  double handler_seconds = 0;           ///< time per handler of a loop
  std::size_t eager_bytes = 64 << 10;   ///< largest message that does not wait for its receive
  std::vector<double> slow_nodes = {};  ///< by node, factor on the time per byte on its links; missing ones: 1
};

/// Loops have no poll sources: add_source() throws.
class Simulation {
 public:
  /// Ranks share a node without limits.
  Simulation(int ranks, const DrawnDelays& delays);
  explicit Simulation(ComputedDelays delays);
  ~Simulation();

  [[nodiscard]] VirtualTime& time() noexcept;
  [[nodiscard]] PhantomSpace& space() noexcept;
  [[nodiscard]] VirtualNetwork& network() noexcept;
  [[nodiscard]] EventLoop& loop(int rank);
  [[nodiscard]] Transport& transport(int rank);
  [[nodiscard]] VirtualCores& cores(int rank);  ///< cores of the rank's node
  [[nodiscard]] VirtualDisk& disk(int rank);    ///< files of the rank's node

  /// Runs handlers in the order of time until every loop was stopped; may be called again. Rethrows the exception of
  /// a handler or of stop(). Throws ErrorCode::transport with the pending operations on a deadlock: no event is left,
  /// or with drawn delays only timers ran for an hour. `goes_on`, if set, is polled regularly; once it returns false,
  /// run() returns false and must not be called again.
  bool run(const std::function<bool()>& goes_on = {});

  [[nodiscard]] std::uint64_t handlers_run() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
