#include "collectives/communicators/mpi_communicator.hpp"

#include "collectives/communicators/plan_communicator.hpp"
#include "runtime/base/error.hpp"
#include "tests/collectives/mpi_rank.hpp"
#include "tests/collectives/reference.hpp"
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

  Members(const Topology& topology, int rank) : team{topology, std::vector<int>(topology.ranks())} {
    std::iota(team.members.begin(), team.members.end(), 0);
    ranks.assign(team.members.rbegin(), team.members.rend());
    me = topology.ranks() - 1 - rank;
  }
};

constexpr std::array all_collectives = {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce};
const std::vector<std::size_t> lengths = {3000, 1, 0, 777, 20000};  ///< length of a piece, for each part

/// Small integers, whose sums are the same in any order.
float value(std::size_t part, int member, std::size_t element) {
  return static_cast<float>((part * 31 + static_cast<std::size_t>(member) * 7 + element * 3) % 64);
}

/// Runs every collective twice, all of them concurrently, and checks the values.
void run_all(Rank& rank, Communicator& communicator, const GappedRuns& runs = {}) {
  const Topology& topology = communicator.team().topology;
  const int me = communicator.me(), ranks = topology.ranks();
  std::vector<std::vector<std::vector<float>>> buffers;  // [operation][part]
  std::size_t left = 0;
  for (int operation = 0; operation < 6; ++operation) {
    auto& parts = buffers.emplace_back();
    std::vector<Communicator::Operand> given;
    for (std::size_t part = 0; part < lengths.size(); ++part) {
      const std::size_t elements = lengths[part] * static_cast<std::size_t>(ranks);
      auto& buffer = parts.emplace_back(elements == 0 ? 0 : runs.place(elements - 1) + 1);
      for (std::size_t i = 0; i < elements; ++i) buffer[runs.place(i)] = value(part, me, i);
      given.push_back({reinterpret_cast<std::byte*>(buffer.data()), elements, runs.run, runs.stride()});
    }
    ++left;
    communicator.run(all_collectives[operation % 3], given, DType::f32, "test", [&] {
      if (--left == 0) rank.loop.stop();
    });
  }
  CHECK(left == 6);
  CHECK(communicator.running().size() == (ranks == 1 ? 0 : 6));
  rank.loop.run();
  CHECK(communicator.running().empty());
  for (std::size_t operation = 0; operation < buffers.size(); ++operation) {
    const Collective collective = all_collectives[operation % 3];
    CAPTURE(to_string(collective));
    for (std::size_t part = 0; part < lengths.size(); ++part) {
      bool equal = true;
      for (std::size_t i = 0; i < lengths[part] * static_cast<std::size_t>(ranks); ++i) {
        const int owner = topology.rank_of_piece(static_cast<int>(i / lengths[part]));
        if (collective == Collective::reduce_scatter && owner != me) continue;
        float expected = value(part, owner, i);
        if (collective != Collective::all_gather) {
          expected = 0;
          for (int member = 0; member < ranks; ++member) expected += value(part, member, i);
        }
        equal = equal && buffers[operation][part][runs.place(i)] == expected;
      }
      CHECK(equal);
    }
  }
}

}  // namespace

TEST_CASE("MPI's collectives leave each piece with its owner, for any topology and order of the members") {
  for (const Topology& topology : topologies_of(mpi_session().ranks())) {
    CAPTURE(topology.inner);
    Rank rank;  // its loop keeps every source
    const Members members(topology, rank.transport.rank());
    MpiCommunicator communicator(mpi_session(), rank.loop, members.team, members.me, members.ranks);
    run_all(rank, communicator);
    mpi_session().barrier();
  }
}

TEST_CASE("a communicator over MPI may have a subset of the ranks") {
  Rank rank;
  const int ranks = rank.transport.ranks(), me = rank.transport.rank();
  std::vector<int> alike;  // all even or all odd ranks
  for (int other = me % 2; other < ranks; other += 2) alike.push_back(other);
  std::vector<int> indices(alike.size());
  std::iota(indices.begin(), indices.end(), 0);
  MpiCommunicator communicator(mpi_session(), rank.loop,
                               {Topology::regular(static_cast<int>(alike.size()), 1), indices}, me / 2, alike);
  run_all(rank, communicator);
  mpi_session().barrier();
}

TEST_CASE("plans of several parts give the same values between processes") {
  Rank rank;
  ranvier::tests::Share share(1, 2);
  for (const Topology& topology : topologies_of(rank.transport.ranks())) {
    const Members members(topology, rank.transport.rank());
    for (const char* name : {"ring", "recursive", "hierarchical", "h-ring", "ho-ring"}) {
      CAPTURE_ALL(topology.inner, name);
      const PlanChoice choice{.all_gather = name,
                              .reduce_scatter = name,
                              .all_reduce = std::string(name) == "h-ring" ? "torus" : name,
                              .chunk_bytes = 16 << 10};
      const std::vector<GappedRuns> layouts = {
          {}, {100, 23}, {2500, 1}};  // short runs, packed in one message, and long ones
      std::vector<OperationShape> shapes;
      for (const GappedRuns& runs : layouts)
        for (const Collective collective : all_collectives) {
          auto& shape = shapes.emplace_back(OperationShape{collective, lengths});
          for (std::size_t& elements : shape.parts) elements *= static_cast<std::size_t>(topology.ranks());
          shape.runs.assign(lengths.size(), runs.run);
        }
      const std::size_t bytes = PlanCommunicator::staging_bytes(members.team, members.me, choice, shapes);
      std::vector<std::byte> staging(6 * bytes);
      std::vector<std::byte*> places;
      for (int place = 0; place < 6; ++place) places.push_back(staging.data() + place * bytes);
      PlanCommunicator communicator(rank.loop, rank.executor,
                                    {.team = members.team,
                                     .me = members.me,
                                     .ranks = members.ranks,
                                     .choice = choice,
                                     .staging = places,
                                     .staging_bytes = bytes});
      for (const GappedRuns& runs : layouts)
        if (share.takes()) run_all(rank, communicator, runs);
    }
  }
  CHECK(rank.transport.pending().empty());
}

TEST_CASE("MPI's sums in half precision are refused by name, its gathers are not") {
  Rank rank;
  const Members members(Topology::regular(rank.transport.ranks(), 1), rank.transport.rank());
  MpiCommunicator communicator(mpi_session(), rank.loop, members.team, members.me, members.ranks);
  std::vector<Bf16> buffer(10 * static_cast<std::size_t>(rank.transport.ranks()));
  for (std::size_t i = 0; i < 10; ++i) {
    const int piece = members.team.topology.piece(members.me);
    buffer[static_cast<std::size_t>(piece) * 10 + i] = from_float<Bf16>(static_cast<float>(piece + 1));
  }
  const Communicator::Operand part{reinterpret_cast<std::byte*>(buffer.data()), buffer.size()};
  CHECK_THROWS_WITH_AS(
      communicator.run(Collective::reduce_scatter, {&part, 1}, DType::bf16, "gradients of h.0", [] {}),
      doctest::Contains("gradients of h.0: MPI cannot add bf16"), ranvier::Error);
  communicator.run(Collective::all_gather, {&part, 1}, DType::bf16, "gather of h.0", [&] { rank.loop.stop(); });
  rank.loop.run();
  for (std::size_t i = 0; i < buffer.size(); ++i) CHECK(to_float(buffer[i]) == static_cast<float>(i / 10 + 1));
  mpi_session().barrier();
}
