// NCCL in virtual time: the operations of all ranks of a cluster, by formula. An operation begins when all ranks of its
// team have begun it and the one before it of the same communicator has ended, and takes what rings over all links
// that the team has take (VirtualNetwork::ring): of S bytes, (P - 1)/P to gather or scatter them among P ranks, twice
// that to reduce them for all. To that come latencies: one for each link that a ring goes over, or of an all-reduce
// those of a tree over the nodes, where that is less, as NCCL has both. Hierarchical ones are rings across the nodes
// and inside them, after one another. Any other algorithm by its name takes what its plan is estimated to take
// (cost.hpp), and keeps no link from others.
//
// One per cluster, one thread.
#pragma once

#include "collectives/communicator_factory.hpp"
#include "collectives/nccl_steps.hpp"
#include "runtime/virtual_cluster.hpp"

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
  using Ways = std::array<NcclMode, 3>;  ///< by Collective

  /// The cluster outlives it. `absent`: ranks that begin nothing, since others do the same at the same time; their
  /// links are used all the same. Of each team that begins something, one rank at least is there. Empty: none.
  PhantomNccl(runtime::VirtualCluster& cluster, const Ways& ways, std::vector<bool> absent = {})
      : cluster_(&cluster), ways_(ways), absent_(std::move(absent)) {}

  /// For the column of one rank, whose loop that is. What it makes, this outlives.
  /// `held`: the rank's device, if it computes nothing while the rank is in an operation; null: both overlap.
  [[nodiscard]] std::unique_ptr<CommunicatorFactory> source(runtime::EventLoop& loop,
                                                            runtime::PhantomDevice* held = nullptr);

 private:
  class Source;
  class Member;

  struct Operation {
    Collective collective = Collective::all_gather;
    std::size_t bytes = 0;
    std::size_t element_bytes = 1;
    std::vector<runtime::Handler> done;              ///< of the members that have begun it
    std::vector<runtime::PhantomDevice*> held = {};  ///< theirs
  };
  /// A communicator with all its members.
  struct Group {
    Team team;
    std::vector<int> ranks;    ///< of the cluster, by member
    std::size_t expected = 0;  ///< of them, those that are not absent
    PlanChoice choice;
    std::deque<Operation> waiting;     ///< that not all members have begun
    std::uint64_t first = 0;           ///< number of the first of those
    std::vector<std::uint64_t> begun;  ///< operations, by member
    runtime::Duration ends{};          ///< of the last one that all have begun
    std::map<std::tuple<Collective, std::size_t, std::size_t>, runtime::Duration> planned = {};
  };

  [[nodiscard]] bool is_absent(int rank) const {
    return static_cast<std::size_t>(rank) < absent_.size() && absent_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Group& group(int number, const PlanCommunicator::Options& options);
  void begin(Group& group, int me, Operation operation);
  [[nodiscard]] runtime::Duration end_of(Group& group, const Operation& operation);
  [[nodiscard]] runtime::Duration by_rings(const Group& group, const Operation& operation, runtime::Duration ready);
  [[nodiscard]] runtime::Duration by_levels(const Group& group, const Operation& operation,
                                            runtime::Duration ready);

  runtime::VirtualCluster* cluster_;
  Ways ways_;
  std::vector<bool> absent_;
  std::map<std::pair<int, int>, Group> groups_;  ///< by number and first rank
};

}  // namespace ranvier::collectives
