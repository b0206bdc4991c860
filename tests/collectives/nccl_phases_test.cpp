#include "runtime/base/error.hpp"
#include "tests/collectives/nccl_job.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;

namespace {

/// Connected communicators of two ranks, used directly.
void launch_sum(NcclLibrary& library, NcclLibrary::Handle handle, StreamView stream, float& value) {
  (void)library.group_start();
  auto* const bytes = reinterpret_cast<std::byte*>(&value);
  (void)library.run({NcclCall::Kind::all_reduce, bytes, bytes, 1}, DType::f32, handle, stream);
  (void)library.group_end();
  while (library.status(handle) == NcclLibrary::in_progress) {
  }
}

/// Two ranks with communicators, each on its own stream or all on one.
struct TwoRanks {
  NcclWorld world;
  std::vector<std::unique_ptr<Device>> gpus;
  std::vector<std::unique_ptr<NcclLibrary>> libraries;
  std::array<std::vector<std::unique_ptr<Stream>>, 2> streams;
  std::array<std::vector<NcclLibrary::Handle>, 2> handles;
  std::array<float, 6> values{};

  TwoRanks(std::uint64_t seed, std::size_t communicators, std::size_t streams_of_each) : world(seed) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      gpus.push_back(world.make_gpu());
      libraries.push_back(world.make_library());
      for (std::size_t s = 0; s < streams_of_each; ++s)
        streams[rank].push_back(gpus[rank]->make_stream("nccl", StreamWidth::one));
      handles[rank].resize(communicators);
    }
    for (std::size_t c = 0; c < communicators; ++c) {
      NcclLibrary::Id id;
      (void)libraries[0]->make_id(id);
      for (std::size_t rank = 0; rank < 2; ++rank)
        (void)libraries[rank]->connect(handles[rank][c], id, 2, static_cast<int>(rank), *streams[rank][0]);
    }
  }

  void launch(std::size_t rank, std::size_t communicator) {
    launch_sum(*libraries[rank], handles[rank][communicator],
               *streams[rank][std::min(communicator, streams[rank].size() - 1)], values[3 * rank + communicator]);
  }

  [[nodiscard]] bool ends() {
    try {
      for (auto& of_rank : streams)
        for (auto& stream : of_rank) stream->synchronize();
      return true;
    } catch (const ranvier::Error&) {
      return false;
    }
  }
};

/// Returns whether two ranks that each start one operation of two communicators, in these orders, finish.
bool ends(std::array<std::size_t, 2> order_of_0, std::array<std::size_t, 2> order_of_1) {
  TwoRanks two(1, 2, 1);
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (const std::size_t communicator : rank == 0 ? order_of_0 : order_of_1) two.launch(rank, communicator);
  return two.ends();
}

/// The same with one stream per communicator, one order of the calls, on GPUs with capacity for one kernel. Work before
/// the operations ends for both at the same time.
bool ends_on_two_streams(std::uint64_t seed, bool keeps_launch_order) {
  TwoRanks two(seed, 3, 3);
  two.world.room = 1;
  two.world.keeps_launch_order = keeps_launch_order;
  std::vector<std::unique_ptr<Event>> before;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto& streams = two.streams[rank];
    if (rank == 0) two.launch(0, 2);
    // The second rank's streams wait for this work, too: it starts when the first rank's operation is called.
    auto& event = before.emplace_back(two.gpus[0]->make_event());
    event->record(*two.streams[0][2]);
    for (const std::size_t communicator : {0u, 1u}) {
      streams[communicator]->wait(*event);
      if (rank == 0) two.launch(rank, communicator);
    }
  }
  two.launch(1, 2);
  for (const std::size_t communicator : {0u, 1u}) two.launch(1, communicator);
  return two.ends();
}

}  // namespace

TEST_CASE(
    "kernels of two streams that start in the order of the calls finish on GPUs with capacity for one of them") {
  int ended = 0, ended_as_they_come = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    ended += ends_on_two_streams(seed, true);
    ended_as_they_come += ends_on_two_streams(seed, false);
  }
  CHECK(ended == 40);
  CHECK(ended_as_they_come < 40);
}

namespace {

/// Three flows on two nodes of two ranks: each flow's operations in order, the flows in any order.
void run_in_any_order(std::uint64_t seed) {
  constexpr int flows = 3, operations = 4, ranks = 4;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto way = random() % 4 == 0 ? NcclMode::own : NcclMode::hierarchical;
  NcclJob job(Topology::regular(2, 2), seed, way, {}, random() % 4 != 0);
  job.world.room = 1 + random() % 2;
  for (int flow = 0; flow < flows; ++flow) {
    const std::uint64_t kind = random() % 3;
    if (kind == 0) {
      (void)job.add_communicator(flow, {});
    } else {
      (void)job.add_communicator_of(kind == 1 ? TeamKind::group : TeamKind::replicas, flow);
    }
  }
  std::array<Collective, flows * operations> collectives{};
  for (Collective& collective : collectives) collective = all_collectives[random() % all_collectives.size()];
  // The number of elements identifies an operation and its phases.
  const auto elements = [](int operation) { return std::size_t{16} * static_cast<std::size_t>(operation + 1); };
  std::vector<std::vector<std::vector<float>>> data(ranks);
  std::array<int, ranks> left{};
  left.fill(flows * operations);
  std::vector<std::vector<int>> orders(ranks);  // flows
  for (std::size_t me = 0; me < ranks; ++me) {
    for (int operation = 0; operation < flows * operations; ++operation)
      data[me].emplace_back(elements(operation), static_cast<float>(operation + 100 * static_cast<int>(me)));
    for (int flow = 0; flow < flows; ++flow) orders[me].insert(orders[me].end(), operations, flow);
    std::shuffle(orders[me].begin(), orders[me].end(), random);
  }
  job.connect([&](int me) {
    std::array<std::size_t, flows> started{};
    for (const int flow : orders[static_cast<std::size_t>(me)]) {
      const auto index = static_cast<std::size_t>(flow), operation = index * operations + started[index]++;
      job.loop(me).post([&, me, index, operation] {
        job.run(me, index, collectives[operation], data[static_cast<std::size_t>(me)][operation], "sum", [&, me] {
          if (--left[static_cast<std::size_t>(me)] == 0) job.loop(me).stop();
        });
      });
    }
  });
  job.simulation.run();
  const auto& first_order = dynamic_cast<WaitingGpu&>(*job.ranks[0].gpu).launches;
  for (int me = 0; me < ranks; ++me) {
    CHECK(dynamic_cast<WaitingGpu&>(*job.ranks[static_cast<std::size_t>(me)].gpu).launches == first_order);
    for (int flow = 0; flow < flows; ++flow) {
      const Team& team = job.communicator(me, static_cast<std::size_t>(flow)).team();
      for (int o = 0; o < operations; ++o) {
        const int operation = flow * operations + o;
        const Collective collective = collectives[static_cast<std::size_t>(operation)];
        const auto& values = data[static_cast<std::size_t>(me)][static_cast<std::size_t>(operation)];
        const std::size_t piece = values.size() / team.members.size();
        float sum = 0;
        for (const int member : team.members) sum += static_cast<float>(operation + 100 * member);
        bool as_expected = true;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto owner = static_cast<std::size_t>(team.topology.rank_of_piece(static_cast<int>(i / piece)));
          float expected = sum;
          if (collective == Collective::all_gather)
            expected = static_cast<float>(operation + 100 * team.members[owner]);
          if (collective == Collective::reduce_scatter && team.members[owner] != me) continue;
          as_expected = as_expected && values[i] == expected;
        }
        CHECK(as_expected);
      }
    }
  }
}

/// Virtual time of operations on two nodes of two ranks, each of whose phases takes 10 ms. With two hops, the second
/// hop is a separate operation across the nodes, after the first one.
double seconds_of(Collective collective, bool two_hops, int operations, bool keeps_launch_order) {
  NcclJob job(Topology::regular(2, 2), 1, two_hops ? NcclMode::own : NcclMode::hierarchical, {},
              keeps_launch_order);
  job.world.takes_time = [&](std::function<void()> over) {
    job.simulation.loop(job.topology.ranks() - 1).after(std::chrono::milliseconds(10), std::move(over));
  };
  const std::size_t first = two_hops ? job.add_communicator_of(TeamKind::group, 0) : job.add_communicator(0, {});
  const std::size_t second = two_hops ? job.add_communicator_of(TeamKind::replicas, 1) : first;
  std::vector<std::vector<float>> data(4, std::vector<float>(static_cast<std::size_t>(operations) * 16));
  int left = 4 * operations, connected = 0;
  Duration begin{};
  Duration end{};
  const auto start = [&](int me) {
    for (int o = 0; o < operations; ++o) {
      const std::span<float> values(data[static_cast<std::size_t>(me)].data() + 16 * o, 16);
      const Handler done = [&, me] {
        if (--left > 0) return;
        end = job.loop(me).now();
        for (int other = 0; other < 4; ++other) job.loop(other).stop();
      };
      job.run(me, first, collective, values, "first", [&, me, values, done] {
        if (!two_hops) return done();
        job.run(me, second, collective, values, "second", done);
      });
    }
  };
  job.connect([&](int me) {
    if (++connected < 4) return;
    begin = job.loop(me).now();
    for (int other = 0; other < 4; ++other) job.loop(other).post([&, other] { start(other); });
  });
  job.simulation.run();
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

TEST_CASE("ranks that start operations of several communicators in different orders do not deadlock") {
  // They would deadlock if each rank used its own order.
  CHECK(ends({0, 1}, {0, 1}));
  CHECK(!ends({0, 1}, {1, 0}));

  for (const std::uint64_t seed : seeds(sanitized ? 20 : 1000)) run_in_any_order(seed);
}

TEST_CASE("NCCL's operations inside nodes and across nodes overlap") {
  constexpr int operations = 8;
  for (const bool two_hops : {false, true}) {
    for (const Collective collective : all_collectives) {
      if (two_hops && collective != Collective::all_reduce) continue;
      CAPTURE_ALL(two_hops, static_cast<int>(collective));
      const double alone = seconds_of(collective, two_hops, operations, false);
      const double together = seconds_of(collective, two_hops, operations, true);
      // In multiples of a phase; messages and handlers take some time, too.
      const int phases = !two_hops && collective == Collective::all_reduce ? 3 : 2;
      CHECK(alone >= 1e-2 * phases * operations);
      CHECK(together < 1e-2 * ((phases - 1) * operations + 1.9));
    }
  }
}

TEST_CASE("ranks wait for the first rank's order of operations only if there are several flows") {
  for (const int flows : {1, 2}) {
    CAPTURE(flows);
    NcclJob job(Topology::regular(2, 1), 1, NcclMode::own);
    for (int flow = 0; flow < flows; ++flow) (void)job.add_communicator(flow, {});
    std::array<float, 2> values{};
    // The second rank starts an operation, and the first one never does.
    job.connect([&](int me) {
      if (me == 0) return job.loop(0).stop();
      job.run(1, 0, Collective::all_reduce, values, "sum");
      job.loop(1).after(std::chrono::milliseconds(1), [&] { job.loop(1).stop(); });
    });
    job.simulation.run();
    CHECK(job.world.groups == (flows == 1 ? 1 : 0));
    const auto waited_for = job.ranks[1].column->waited_for();
    REQUIRE(waited_for.size() == 1);
    CHECK(waited_for[0].peer == job.mpi_ranks[0]);
    CHECK(job.transport(1).pending().size() == (flows == 1 ? 0 : 1));
  }
}
