// Cluster in virtual time: a loop and a transport per rank, cores and files per node, and links. With phantom devices
// (phantom_device.hpp) the actors of a whole job run on it and predict the duration of the real run. Deterministic.
// One thread.
//
//   VirtualCluster cluster({.node_of = {0, 0, 1, 1}, .links = links});
//   // for each rank r: actors on cluster.loop(r) and cluster.transport(r), a device on cluster.time()
//   cluster.run();   // throws if ranks wait and no event is left
#pragma once

#include "runtime/loop/event_loop.hpp"
#include "runtime/machine/links.hpp"
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

struct VirtualClusterOptions {
  std::vector<int> node_of;  ///< node of each rank, starting at 0
  Links links;
  VirtualCores::Options cores = {};  ///< cores per node
  VirtualDisk::Rates files;
  double handler_seconds = 0;          ///< time per handler of a loop
  std::size_t eager_bytes = 64 << 10;  ///< largest message that does not wait for its receive
  std::vector<double> slow_nodes;      ///< by node, factor on the time per byte on its links; missing ones: 1
};

/// Messages of activations, gradients, collectives and shards have a size but no content; all other messages arrive as
/// they were sent. Short messages leave when they are sent, longer ones once both ends are ready.
class VirtualCluster {
 public:
  explicit VirtualCluster(VirtualClusterOptions options);
  ~VirtualCluster();

  [[nodiscard]] VirtualTime& time() noexcept;
  [[nodiscard]] PhantomSpace& space() noexcept;
  [[nodiscard]] VirtualNetwork& network() noexcept;
  [[nodiscard]] EventLoop& loop(int rank);
  [[nodiscard]] Transport& transport(int rank);
  [[nodiscard]] VirtualCores& cores(int rank);  ///< cores of the rank's node
  [[nodiscard]] VirtualDisk& disk(int rank);    ///< files of the rank's node

  /// Runs handlers in the order of time until every loop was stopped; may be called again. Rethrows the exception of
  /// a handler or of stop(). Throws ErrorCode::transport with the pending operations if loops are running and no
  /// event is left. `goes_on`, if set, is polled regularly; once it returns false, run() returns false and must not
  /// be called again.
  bool run(const std::function<bool()>& goes_on = {});

  [[nodiscard]] std::uint64_t handlers_run() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::runtime
