// NCCL in virtual time, by formula, for all ranks of a cluster. An operation starts when all ranks of its team have
// started it and its communicator's previous one has ended. It takes as long as rings over all links of the team
// (VirtualNetwork::ring): (P - 1)/P of S bytes for a gather or scatter among P ranks, twice that for an all-reduce.
// Added latencies: one per link of a ring, or for an all-reduce a tree over the nodes if that is less. Hierarchical
// operations are rings across, then inside the nodes. An all-to-all sends half of its buffer in P - 1 steps
// (VirtualNetwork::exchange). Other algorithms take the estimated time of their plan (cost.hpp) and occupy no link.
//
// One per cluster, one thread.
#pragma once

#include "collectives/communicators/communicator_factory.hpp"
#include "collectives/nccl/nccl_steps.hpp"
#include "runtime/simulation/simulation.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace ranvier::collectives {

class PhantomNccl {
 public:
  /// The cluster must outlive it. `absent`: ranks that start nothing, because equivalent ranks do so at the same time;
  /// their links are still used. Each team needs at least one present rank. Empty: none.
  PhantomNccl(runtime::Simulation& cluster, const NcclModes& ways, std::vector<bool> absent = {})
      : cluster_(&cluster), ways_(ways), absent_(std::move(absent)) {}

  /// Factory for the column of one rank, with that rank's loop; this must outlive its communicators. `held`: the
  /// rank's device, if operations block computation; null: both overlap.
  [[nodiscard]] std::unique_ptr<CommunicatorFactory> source(runtime::EventLoop& loop,
                                                            runtime::PhantomDevice* held = nullptr);

 private:
  class Source;
  class Member;

  struct Operation {
    Collective collective = Collective::all_gather;
    std::size_t bytes = 0;
    std::size_t element_bytes = 1;
    std::vector<runtime::Handler> done;              ///< handlers of the members that have started it
    std::vector<runtime::PhantomDevice*> held = {};  ///< devices of these members
  };
  /// A communicator with all its members.
  struct Group {
    PlanCommunicator::Options options;  ///< options of a member; `ranks` are the ranks of the cluster
    std::size_t expected = 0;           ///< number of present members
    std::deque<Operation> waiting;      ///< operations that not all members have started
    std::uint64_t first = 0;            ///< number of the first of them
    std::vector<std::uint64_t> begun;   ///< started operations, by member
    runtime::Duration ends{};           ///< end of the last operation that all have started
    std::map<std::tuple<Collective, std::size_t, std::size_t>, runtime::Duration> planned = {};
  };

  [[nodiscard]] bool is_absent(int rank) const {
    return static_cast<std::size_t>(rank) < absent_.size() && absent_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Group& group(int number, const PlanCommunicator::Options& options);
  void begin(Group& group, int me, Operation operation);
  [[nodiscard]] runtime::Duration end_of(Group& group, const Operation& operation);
  [[nodiscard]] runtime::Duration by_exchange(const Group& group, const Operation& operation,
                                              runtime::Duration ready);
  [[nodiscard]] runtime::Duration by_rings(const Group& group, const Operation& operation, NcclMode mode,
                                           runtime::Duration ready);

  runtime::Simulation* cluster_;
  NcclModes ways_;
  std::vector<bool> absent_;
  std::map<std::pair<int, int>, Group> groups_;  ///< by number and first rank
};

}  // namespace ranvier::collectives
