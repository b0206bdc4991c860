// Ranks of a column whose collectives run on the tests' NCCL, in one process.
#pragma once

#include "collectives/nccl/nccl_column.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/collectives/nccl_world.hpp"
#include "tests/test.hpp"

namespace ranvier::test {

using collectives::Collective;
using collectives::Communicator;
using collectives::NcclColumn;
using collectives::NcclMode;
using collectives::NcclSpan;
using collectives::OperationShape;
using collectives::PlanChoice;
using collectives::PlanCommunicator;
using collectives::Team;
using collectives::TeamKind;
using collectives::Topology;
using runtime::Device;
using runtime::EventLoop;
using runtime::Simulation;
using runtime::Transport;

/// One rank of such a job, whose column has all ranks.
struct NcclRank {
  std::unique_ptr<Device> gpu;
  std::unique_ptr<NcclLibrary> library;
  std::unique_ptr<NcclColumn> column;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::byte> staging;
};

/// A column of ranks, in the reverse order of the MPI ranks, and a rank that is not a member.
struct NcclJob {
  Simulation simulation;
  NcclWorld world;
  Topology topology;
  std::vector<int> mpi_ranks;
  std::vector<NcclRank> ranks;
  PlanChoice choice;

  NcclJob(const Topology& of_topology, std::uint64_t seed, NcclMode way, const PlanChoice& of_choice = {},
          bool keeps_launch_order = true)
      : simulation(of_topology.ranks() + 1, {.seed = seed}), world(seed), topology(of_topology), choice(of_choice) {
    world.keeps_launch_order = keeps_launch_order;
    simulation.loop(topology.ranks()).stop();
    for (int rank = topology.ranks() - 1; rank >= 0; --rank) mpi_ranks.push_back(rank);
    for (int me = 0; me < topology.ranks(); ++me) {
      NcclRank& rank = ranks.emplace_back();
      rank.gpu = world.make_gpu();
      rank.library = world.make_library();
      rank.column = std::make_unique<NcclColumn>(
          loop(me), transport(me), *rank.gpu, *rank.library,
          NcclColumn::Options{.ranks = mpi_ranks, .ways = {way, way, way}, .timeout = std::chrono::seconds(2)});
    }
  }
  ~NcclJob() {
    for (NcclRank& rank : ranks) rank.column->close();
  }

  /// Connects all ranks, or `only` this one, and calls `done` with each.
  void connect(const std::function<void(int me)>& done, std::optional<int> only = {}) {
    for (int me = 0; me < topology.ranks(); ++me)
      if (only.value_or(me) == me) ranks[static_cast<std::size_t>(me)].column->connect([done, me] { done(me); });
  }
  Communicator& communicator(int me, std::size_t index) {
    return *ranks[static_cast<std::size_t>(me)].communicators[index];
  }
  /// Runs an operation on all of `values`.
  void run(
      int me, std::size_t index, Collective collective, std::span<float> values, const std::string& what,
      runtime::Handler done = [] {}) {
    const Communicator::Operand part{reinterpret_cast<std::byte*>(values.data()), values.size()};
    communicator(me, index).run(collective, {&part, 1}, runtime::DType::f32, what, std::move(done));
  }

  EventLoop& loop(int me) { return simulation.loop(mpi_ranks[static_cast<std::size_t>(me)]); }
  Transport& transport(int me) { return simulation.transport(mpi_ranks[static_cast<std::size_t>(me)]); }

  /// Adds a communicator of the ranks of a node, or of the ranks at one position of all nodes; returns its index.
  std::size_t add_communicator_of(TeamKind kind, int number) {
    for (int me = 0; me < topology.ranks(); ++me) {
      const bool within = kind == TeamKind::group;
      Team team{within ? Topology::regular(topology.inner, 1) : Topology::regular(1, topology.outer), {}};
      team.members = nccl_members(topology, me, within ? NcclSpan::row : NcclSpan::column);
      std::vector<int> of_team;
      for (const int member : team.members) of_team.push_back(mpi_ranks[static_cast<std::size_t>(member)]);
      const int index = team.index_of(me);
      NcclRank& rank = ranks[static_cast<std::size_t>(me)];
      rank.communicators.push_back(rank.column->communicator(
          kind, number, {.team = std::move(team), .me = index, .ranks = std::move(of_team)}));
    }
    return ranks[0].communicators.size() - 1;
  }

  /// Adds a communicator of all ranks; returns its index.
  std::size_t add_communicator(int number, std::span<const OperationShape> shapes) {
    for (int me = 0; me < topology.ranks(); ++me) {
      NcclRank& rank = ranks[static_cast<std::size_t>(me)];
      const Team team = team_of(topology);
      const std::size_t bytes = PlanCommunicator::staging_bytes(team, me, choice, shapes);
      if (rank.staging.size() < bytes + 1) rank.staging.resize(bytes + 1);
      rank.communicators.push_back(rank.column->communicator(TeamKind::column, number,
                                                             {.team = team,
                                                              .me = me,
                                                              .ranks = mpi_ranks,
                                                              .choice = choice,
                                                              .staging = {rank.staging.data()},
                                                              .staging_bytes = bytes}));
    }
    return ranks[0].communicators.size() - 1;
  }
};

}  // namespace ranvier::test
