// A cluster in virtual time: a loop and a transport for each rank, cores and files for each node, and the links
// between them. With phantom devices (phantom_device.hpp) the actors of a whole job run on it, and their clocks say how
// long the real run would take.
//
//   VirtualCluster cluster({.node_of = {0, 0, 1, 1}, .links = links});
//   // for each rank r: actors on cluster.loop(r) and cluster.transport(r), a device on cluster.time()
//   cluster.run();   // throws when ranks wait and nothing can happen any more
//
// Messages of activations, gradients, collectives and parameters are numbers of bytes, which nobody reads or writes;
// what ranks tell each other arrives as it was sent. Short messages leave when they are sent, others when both ends
// are there. Deterministic. One thread.
#pragma once

#include "runtime/event_loop.hpp"
#include "runtime/links.hpp"
#include "runtime/phantom_device.hpp"
#include "runtime/transport.hpp"
#include "runtime/virtual_cores.hpp"
#include "runtime/virtual_disk.hpp"
#include "runtime/virtual_network.hpp"
#include "runtime/virtual_time.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ranvier::runtime {

struct VirtualClusterOptions {
  std::vector<int> node_of;  ///< by rank, counted from 0
  Links links;
  VirtualCores::Options cores = {};  ///< of a node
  VirtualDisk::Rates files;
  double handler_seconds = 0;          ///< what a loop needs for each
  std::size_t eager_bytes = 64 << 10;  ///< of a message that does not wait for its receive
  std::vector<double> slow_nodes;  ///< by node, how many times as long a byte takes on its links; missing ones: 1
};

class VirtualCluster {
 public:
  explicit VirtualCluster(VirtualClusterOptions options);
  ~VirtualCluster();

  [[nodiscard]] VirtualTime& time() noexcept;
  [[nodiscard]] PhantomSpace& space() noexcept;
  [[nodiscard]] VirtualNetwork& network() noexcept;
  [[nodiscard]] EventLoop& loop(int rank);
  [[nodiscard]] Transport& transport(int rank);
  [[nodiscard]] VirtualCores& cores(int rank);  ///< of its node
  [[nodiscard]] VirtualDisk& disk(int rank);    ///< of its node

  /// Runs handlers in the order of time until every loop was stopped; may be called again. Rethrows what a handler
  /// threw or a loop was stopped with. Throws ErrorCode::transport with a list of the pending operations if some loop
  /// was not stopped and nothing is left to happen. `goes_on`, where there is one, is asked now and then: where it says
  /// no, run() ends with false, and may not be called again.
  bool run(const std::function<bool()>& goes_on = {});

  [[nodiscard]] std::uint64_t handlers_run() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
