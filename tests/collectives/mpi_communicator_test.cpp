#include "collectives/communicators/mpi_communicator.hpp"

#include "collectives/communicators/plan_communicator.hpp"
#include "runtime/base/error.hpp"
#include "tests/collectives/calls.hpp"
#include "tests/collectives/mpi_rank.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;
using Rank = MpiRank;

namespace {

/// Members in the reverse order of their ranks.
struct Members {
  Team team;
  std::vector<int> ranks;
  int me = 0;

  Members(const Topology& topology, int rank)
      : team(team_of(topology)),
        ranks(team.members.rbegin(), team.members.rend()),
        me(topology.ranks() - 1 - rank) {}
};

/// Every collective twice, with long and with short parts.
Program program_of(const Topology& topology, const GappedRuns& runs = {}) {
  Program program{.topology = topology, .places = 6, .calls = {}};
  for (const std::vector<std::size_t>& lengths : {std::vector<std::size_t>{3000, 1, 0, 777, 20000}, {60}})
    for (const Collective collective : all_collectives)
      program.calls.push_back({collective, lengths, std::vector<GappedRuns>(lengths.size(), runs)});
  return program;
}

/// Runs all calls of a program at once, and checks this rank's values. All ranks draw the same numbers.
template <typename T>
void run_all(Rank& rank, Communicator& communicator, const Program& program, Numbers numbers) {
  std::mt19937_64 random(1);
  ProgramMemory<T> memory(program, random, numbers);
  for (std::size_t number = 0; number < program.calls.size(); ++number)
    memory.start(number, communicator.me(), communicator, rank.loop);
  CHECK(communicator.running().size() == (program.ranks() == 1 ? 0 : program.calls.size()));
  rank.loop.run();
  CHECK(communicator.running().empty());
  memory.check(communicator.me());
}

}  // namespace

TEST_CASE("MPI's collectives leave each piece with its owner, for any topology and order of the members") {
  for (const Topology& topology : topologies_of(mpi_session().ranks())) {
    CAPTURE(topology.inner);
    Rank rank;  // its loop keeps every source
    const Members members(topology, rank.transport.rank());
    MpiCommunicator communicator(mpi_session(), rank.loop, members.team, members.me, members.ranks);
    run_all<float>(rank, communicator, program_of(topology), Numbers::whole);
    mpi_session().barrier();
  }
}

TEST_CASE("a communicator over MPI may have a subset of the ranks") {
  Rank rank;
  const int ranks = rank.transport.ranks(), me = rank.transport.rank();
  std::vector<int> alike;  // all even or all odd ranks
  for (int other = me % 2; other < ranks; other += 2) alike.push_back(other);
  const Topology topology = Topology::regular(static_cast<int>(alike.size()), 1);
  MpiCommunicator communicator(mpi_session(), rank.loop, team_of(topology), me / 2, alike);
  run_all<float>(rank, communicator, program_of(topology), Numbers::whole);
  mpi_session().barrier();
}

TEST_CASE("plans give the bits of their order of summation between processes, and leave nothing outstanding") {
  Rank rank;
  ranvier::tests::Share share(1, 4);
  std::size_t types = 0;
  for (const Topology& topology : topologies_of(rank.transport.ranks())) {
    const Members members(topology, rank.transport.rank());
    for (std::size_t number = 0; number < 5; ++number)
      // Contiguous; short runs, packed in one message; and long ones.
      for (const GappedRuns& runs : {GappedRuns{}, GappedRuns{100, 23}, GappedRuns{2500, 1}}) {
        if (!share.takes()) continue;
        CAPTURE_ALL(topology.inner, number, runs.run);
        Program program = program_of(topology, runs);
        program.choice = choice_of(number, 16 << 10);
        program.dtype = number_types[types++ % number_types.size()];
        const auto shapes = program.shapes();
        const std::size_t bytes = PlanCommunicator::staging_bytes(members.team, members.me, program.choice, shapes);
        std::vector<std::byte> staging(static_cast<std::size_t>(program.places) * bytes);
        std::vector<std::byte*> places;
        for (int place = 0; place < program.places; ++place) places.push_back(staging.data() + place * bytes);
        PlanCommunicator communicator(rank.loop, rank.executor,
                                      {.team = members.team,
                                       .me = members.me,
                                       .ranks = members.ranks,
                                       .choice = program.choice,
                                       .staging = places,
                                       .staging_bytes = bytes});
        with_number_type(program.dtype,
                         [&](auto type) { run_all<decltype(type)>(rank, communicator, program, Numbers::any); });
      }
  }
  CHECK(rank.transport.pending().empty());
}

TEST_CASE("MPI's sums in half precision are refused by name, its gathers are not") {
  Rank rank;
  const Members members(Topology::regular(rank.transport.ranks(), 1), rank.transport.rank());
  MpiCommunicator communicator(mpi_session(), rank.loop, members.team, members.me, members.ranks);
  const Communicator::Operand part{nullptr, static_cast<std::size_t>(10 * rank.transport.ranks())};
  CHECK_THROWS_WITH_AS(
      communicator.run(Collective::reduce_scatter, {&part, 1}, DType::bf16, "gradients of h.0", [] {}),
      doctest::Contains("gradients of h.0: MPI cannot add bf16"), ranvier::Error);
  const Program gathers{
      .topology = members.team.topology, .dtype = DType::bf16, .calls = {{Collective::all_gather, {10}}}};
  run_all<Bf16>(rank, communicator, gathers, Numbers::any);
  mpi_session().barrier();
}
