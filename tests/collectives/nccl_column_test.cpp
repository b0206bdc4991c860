#include "collectives/nccl_column.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/error.hpp"
#include "runtime/simulation.hpp"
#include "tests/collectives/nccl_world.hpp"
#include "tests/effort.hpp"
#include "tests/seeds.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;

namespace {

constexpr std::array all_collectives = {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce};

/// One rank of a job whose column is all ranks.
struct Rank {
  std::unique_ptr<Device> gpu;
  std::unique_ptr<NcclLibrary> library;
  std::unique_ptr<NcclColumn> column;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::byte> staging;
};

/// A column of ranks, in the reverse order of the MPI ranks, and one that takes no part.
struct Job {
  Simulation simulation;
  NcclWorld world;
  Topology topology;
  std::vector<int> mpi_ranks;
  std::vector<Rank> ranks;
  PlanChoice choice;

  Job(const Topology& of_topology, std::uint64_t seed, NcclWay way, const PlanChoice& of_choice = {},
      bool keeps_launch_order = true)
      : simulation(of_topology.ranks() + 1, {.seed = seed}), world(seed), topology(of_topology), choice(of_choice) {
    world.keeps_launch_order = keeps_launch_order;
    simulation.loop(topology.ranks()).stop();
    for (int rank = topology.ranks() - 1; rank >= 0; --rank) mpi_ranks.push_back(rank);
    for (int me = 0; me < topology.ranks(); ++me) {
      Rank& rank = ranks.emplace_back();
      rank.gpu = world.make_gpu();
      rank.library = world.make_library();
      rank.column = std::make_unique<NcclColumn>(
          loop(me), transport(me), *rank.gpu, *rank.library,
          NcclColumn::Options{.ranks = mpi_ranks, .ways = {way, way, way}, .timeout = std::chrono::seconds(2)});
    }
  }
  ~Job() {
    for (Rank& rank : ranks) rank.column->close();
  }

  EventLoop& loop(int me) { return simulation.loop(mpi_ranks[static_cast<std::size_t>(me)]); }
  Transport& transport(int me) { return simulation.transport(mpi_ranks[static_cast<std::size_t>(me)]); }

  /// A communicator of the ranks that share a node, or of those at one place of all nodes; returns its index.
  std::size_t add_communicator_of(TeamKind kind, int number) {
    for (int me = 0; me < topology.ranks(); ++me) {
      const bool within = kind == TeamKind::group;
      Team team{within ? Topology::regular(topology.inner, 1) : Topology::regular(1, topology.outer), {}};
      team.members = nccl_members(topology, me, within ? NcclSpan::row : NcclSpan::column);
      std::vector<int> of_team;
      for (const int member : team.members) of_team.push_back(mpi_ranks[static_cast<std::size_t>(member)]);
      const int index = team.index_of(me);
      Rank& rank = ranks[static_cast<std::size_t>(me)];
      rank.communicators.push_back(rank.column->communicator(
          kind, number, {.team = std::move(team), .me = index, .ranks = std::move(of_team)}));
    }
    return ranks[0].communicators.size() - 1;
  }

  /// One communicator of all ranks; returns its index.
  std::size_t add_communicator(int number, std::span<const OperationShape> shapes) {
    for (int me = 0; me < topology.ranks(); ++me) {
      Rank& rank = ranks[static_cast<std::size_t>(me)];
      Team team{topology, std::vector<int>(mpi_ranks.size())};
      std::iota(team.members.begin(), team.members.end(), 0);
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

struct Call {
  Collective collective = Collective::all_gather;
  std::vector<std::size_t> lengths;   ///< of a piece of each part
  std::vector<GappedRuns> runs = {};  ///< of each part; empty: all are contiguous

  [[nodiscard]] GappedRuns runs_of(std::size_t part) const { return runs.empty() ? GappedRuns{} : runs[part]; }
};

enum class Numbers { any, whole };  ///< sums of small whole numbers are the same in any order

/// GappedRuns all calls at a time and compares the bits of each with the sums of the named algorithm.
template <typename T>
void run_calls(const Topology& topology, NcclWay way, const PlanChoice& choice, const std::vector<Call>& calls,
               DType dtype, Numbers numbers, std::uint64_t seed) {
  CAPTURE(seed);
  CAPTURE(topology.inner);
  CAPTURE(topology.outer);
  CAPTURE(static_cast<int>(way));
  CAPTURE(choice.all_reduce);
  std::mt19937_64 random(seed);
  Job job(topology, seed, way, choice);
  const int ranks = topology.ranks();
  std::vector<OperationShape> shapes;
  for (const Call& call : calls) {
    OperationShape shape{call.collective, {}, dtype};
    for (std::size_t part = 0; part < call.lengths.size(); ++part) {
      shape.parts.push_back(call.lengths[part] * static_cast<std::size_t>(ranks));
      if (!call.runs.empty()) shape.runs.push_back(call.runs[part].run);
    }
    shapes.push_back(shape);
  }
  const std::size_t communicator = job.add_communicator(7, shapes);

  const auto case_of = [&](const Call& call, std::size_t part) {
    return Case{call.collective,
                choice.algorithm_of(call.collective).name,
                topology,
                call.lengths[part] * static_cast<std::size_t>(ranks),
                1,
                1,
                dtype};
  };
  std::vector<std::vector<std::vector<std::vector<T>>>> before;  // [call][part][rank]
  std::vector<std::vector<std::vector<InRuns<T>>>> memory;       // likewise
  for (const Call& call : calls) {
    auto& parts = before.emplace_back();
    auto& places = memory.emplace_back();
    for (std::size_t part = 0; part < call.lengths.size(); ++part) {
      parts.push_back(random_buffers<T>(case_of(call, part), random));
      for (auto& values : parts.back()) {
        if (numbers == Numbers::any) continue;
        for (T& value : values) value = from_float<T>(static_cast<float>(random() % 16));
      }
      auto& of_ranks = places.emplace_back();
      for (const auto& values : parts.back()) of_ranks.emplace_back(values, call.runs_of(part), random);
    }
  }
  std::vector<std::size_t> left(static_cast<std::size_t>(ranks), calls.size());
  for (int me = 0; me < ranks; ++me) {
    Rank& rank = job.ranks[static_cast<std::size_t>(me)];
    rank.column->connect([&, me] {
      for (std::size_t number = 0; number < calls.size(); ++number) {
        std::vector<Communicator::Part> parts;
        for (std::size_t part = 0; part < calls[number].lengths.size(); ++part) {
          const GappedRuns runs = calls[number].runs_of(part);
          parts.push_back({memory[number][part][static_cast<std::size_t>(me)].data(),
                           before[number][part][static_cast<std::size_t>(me)].size(), runs.run, runs.stride()});
        }
        rank.communicators[communicator]->run(calls[number].collective, parts, dtype, "call", [&, me] {
          if (--left[static_cast<std::size_t>(me)] == 0) job.loop(me).stop();
        });
      }
    });
  }
  job.simulation.run();
  for (const Rank& rank : job.ranks) {
    CHECK(rank.communicators[communicator]->running().empty());
    CHECK(rank.column->waited_for().empty());
  }
  for (std::size_t number = 0; number < calls.size(); ++number) {
    for (std::size_t part = 0; part < calls[number].lengths.size(); ++part) {
      const Case c = case_of(calls[number], part);
      const auto expected = promised(c, before[number][part]);
      std::vector<std::vector<T>> after;
      for (const InRuns<T>& of_rank : memory[number][part]) {
        after.push_back(of_rank.values());
        CHECK(of_rank.gaps_untouched());
      }
      for (int rank = 0; rank < ranks; ++rank) CHECK(as_promised(c, expected, after, rank));
    }
  }
}

std::vector<Call> calls_of_all_kinds() {
  std::vector<Call> calls;
  for (const Collective collective : all_collectives) {
    calls.push_back({collective, {1, 0, 7, 33}});
    calls.push_back({collective, {0}});
    calls.push_back({collective, {2}});
    calls.push_back({collective, {6, 0, 35}, {{3, 5}, {3, 5}, {7, 1}}});
    calls.push_back({collective, {6, 33}, {{1, 1}, {}}});
  }
  return calls;
}

}  // namespace

TEST_CASE("NCCL's own collectives, alone and by communicators inside the nodes and across them, give every sum") {
  ranvier::tests::Share share(1, 7);
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (const Topology& topology : topologies_of(ranks)) {
      for (const NcclWay way : {NcclWay::own, NcclWay::hierarchical}) {
        if (!share.takes()) continue;
        run_calls<float>(topology, way, {}, calls_of_all_kinds(), DType::f32, Numbers::whole,
                         static_cast<std::uint64_t>(ranks));
      }
    }
  }
  run_calls<Bf16>(Topology::regular(2, 2), NcclWay::own, {}, calls_of_all_kinds(), DType::bf16, Numbers::whole, 1);
}

TEST_CASE("a plan by NCCL's sends and receives has the bits of that plan, whatever the algorithm and the chunks") {
  ranvier::tests::Share share(1, 10);
  for (const Topology& topology : {Topology::regular(4, 1), Topology::regular(2, 2), Topology::regular(2, 3)}) {
    for (const char* name : {"ring", "recursive", "hierarchical", "h-ring", "ho-ring"}) {
      for (const std::size_t chunk_bytes : {24, 1000}) {
        if (!share.takes()) continue;
        const PlanChoice choice{.all_gather = name,
                                .reduce_scatter = name,
                                .all_reduce = std::string(name) == "h-ring" ? "torus" : name,
                                .chunk_bytes = chunk_bytes,
                                .depth = 2};
        run_calls<float>(topology, NcclWay::plan, choice, calls_of_all_kinds(), DType::f32, Numbers::any,
                         chunk_bytes);
      }
    }
  }
  run_calls<F16>(Topology::regular(2, 2), NcclWay::plan, {}, calls_of_all_kinds(), DType::f16, Numbers::any, 3);
}

TEST_CASE("an NCCL that sums round a ring gives the bits of the ring's plan") {
  std::vector<Call> calls;
  for (const Collective collective : all_collectives) calls.push_back({collective, {1, 7, 33}});
  for (const std::uint64_t seed : seeds(4)) {
    run_calls<float>(Topology::regular(4, 1), NcclWay::own, {}, calls, DType::f32, Numbers::any, seed);
    run_calls<Bf16>(Topology::regular(3, 1), NcclWay::own, {}, calls, DType::bf16, Numbers::any, seed);
  }
}

TEST_CASE("several parts are one launch") {
  Job job(Topology::regular(2, 1), 1, NcclWay::own);
  const std::size_t communicator = job.add_communicator(0, {});
  std::vector<std::vector<float>> data(2, std::vector<float>(12, 1.0f));
  for (int me = 0; me < 2; ++me) {
    Rank& rank = job.ranks[static_cast<std::size_t>(me)];
    rank.column->connect([&, me] {
      auto* values = reinterpret_cast<std::byte*>(data[static_cast<std::size_t>(me)].data());
      const std::vector<Communicator::Part> parts = {{values, 4}, {values + 16, 4}, {values + 32, 4}};
      job.ranks[static_cast<std::size_t>(me)].communicators[communicator]->run(
          Collective::all_reduce, parts, DType::f32, "sum", [&, me] { job.loop(me).stop(); });
    });
  }
  job.simulation.run();
  CHECK(job.world.groups == 2);
  CHECK(job.world.calls == 6);
  CHECK(data == std::vector<std::vector<float>>(2, std::vector<float>(12, 2.0f)));
}

namespace {

/// Connected communicators of two ranks, asked directly.
void launch_sum(NcclLibrary& library, NcclLibrary::Handle handle, StreamView stream, float& value) {
  (void)library.group_start();
  (void)library.all_reduce(&value, &value, 1, DType::f32, handle, stream);
  (void)library.group_end();
  while (library.status(handle) == NcclLibrary::in_progress) {
  }
}

/// Two ranks with communicators, each on a stream of its own or all on one.
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
      for (std::size_t s = 0; s < streams_of_each; ++s) {
        streams[rank].push_back(gpus[rank]->make_stream("nccl", StreamWidth::one));
      }
      handles[rank].resize(communicators);
    }
    for (std::size_t c = 0; c < communicators; ++c) {
      NcclLibrary::Id id;
      (void)libraries[0]->make_id(id);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        (void)libraries[rank]->connect(handles[rank][c], id, 2, static_cast<int>(rank), *streams[rank][0]);
      }
    }
  }

  void launch(std::size_t rank, std::size_t communicator) {
    launch_sum(*libraries[rank], handles[rank][communicator],
               *streams[rank][std::min(communicator, streams[rank].size() - 1)], values[3 * rank + communicator]);
  }

  [[nodiscard]] bool ends() {
    try {
      for (auto& of_rank : streams) {
        for (auto& stream : of_rank) stream->synchronize();
      }
      return true;
    } catch (const ranvier::Error&) {
      return false;
    }
  }
};

/// Whether two ranks that each start one operation of two communicators, in these orders, come to an end.
bool ends(std::array<std::size_t, 2> order_of_0, std::array<std::size_t, 2> order_of_1) {
  TwoRanks two(1, 2, 1);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const std::size_t communicator : rank == 0 ? order_of_0 : order_of_1) two.launch(rank, communicator);
  }
  return two.ends();
}

/// The same with a stream for each communicator, one order of the calls, and work before them that ends for both at a
/// time, on GPUs that have room for one kernel.
bool ends_on_two_streams(std::uint64_t seed, bool keeps_launch_order) {
  TwoRanks two(seed, 3, 3);
  two.world.room = 1;
  two.world.keeps_launch_order = keeps_launch_order;
  std::vector<std::unique_ptr<Event>> before;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto& streams = two.streams[rank];
    if (rank == 0) two.launch(0, 2);
    // On the second rank that is what the others wait for, too: it starts when the first one's is called for.
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

TEST_CASE("kernels of two streams that begin in the order of the calls end where GPUs have room for one of them") {
  int ended = 0, ended_as_they_come = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    ended += ends_on_two_streams(seed, true);
    ended_as_they_come += ends_on_two_streams(seed, false);
  }
  CHECK(ended == 40);
  CHECK(ended_as_they_come < 40);
}

namespace {

/// Three flows on two nodes of two ranks: each flow's operations in order, the flows in any.
void run_in_any_order(std::uint64_t seed) {
  constexpr int flows = 3, operations = 4, ranks = 4;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto way = random() % 4 == 0 ? NcclWay::own : NcclWay::hierarchical;
  Job job(Topology::regular(2, 2), seed, way, {}, random() % 4 != 0);
  job.world.room = 1 + random() % 2;
  for (int flow = 0; flow < flows; ++flow) {
    switch (random() % 3) {
      case 0:
        (void)job.add_communicator(flow, {});
        break;
      case 1:
        (void)job.add_communicator_of(TeamKind::group, flow);
        break;
      default:
        (void)job.add_communicator_of(TeamKind::replicas, flow);
    }
  }
  std::array<Collective, flows * operations> collectives{};
  for (Collective& collective : collectives) collective = all_collectives[random() % all_collectives.size()];
  // The elements tell operations apart, and those of an operation's phases.
  const auto elements = [](int operation) { return std::size_t{16} * static_cast<std::size_t>(operation + 1); };
  std::vector<std::vector<std::vector<float>>> data(ranks);
  std::array<int, ranks> left{};
  left.fill(flows * operations);
  for (int me = 0; me < ranks; ++me) {
    auto& mine = data[static_cast<std::size_t>(me)];
    for (int operation = 0; operation < flows * operations; ++operation) {
      mine.emplace_back(elements(operation), static_cast<float>(operation + 100 * me));
    }
    std::vector<int> order;
    for (int flow = 0; flow < flows; ++flow) order.insert(order.end(), operations, flow);
    std::shuffle(order.begin(), order.end(), random);
    job.ranks[static_cast<std::size_t>(me)].column->connect([&, me, order] {
      std::array<int, flows> started{};
      for (const int flow : order) {
        const int operation = flow * operations + started[static_cast<std::size_t>(flow)]++;
        job.loop(me).post([&, me, flow, operation] {
          auto& values = data[static_cast<std::size_t>(me)][static_cast<std::size_t>(operation)];
          const Communicator::Part part{reinterpret_cast<std::byte*>(values.data()), values.size()};
          job.ranks[static_cast<std::size_t>(me)].communicators[static_cast<std::size_t>(flow)]->run(
              collectives[static_cast<std::size_t>(operation)], {&part, 1}, DType::f32, "sum", [&, me] {
                if (--left[static_cast<std::size_t>(me)] == 0) job.loop(me).stop();
              });
        });
      }
    });
  }
  job.simulation.run();
  const auto& first_order = dynamic_cast<WaitingGpu&>(*job.ranks[0].gpu).launches;
  for (int me = 0; me < ranks; ++me) {
    const Rank& rank = job.ranks[static_cast<std::size_t>(me)];
    CHECK(dynamic_cast<WaitingGpu&>(*rank.gpu).launches == first_order);
    for (int flow = 0; flow < flows; ++flow) {
      const Team& team = rank.communicators[static_cast<std::size_t>(flow)]->team();
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

/// The virtual time of operations on two nodes of two ranks, each of whose phases takes 10 ms. With two hops the second
/// one of an operation is another operation, across the nodes, after the first one.
double seconds_of(Collective collective, bool two_hops, int operations, bool keeps_launch_order) {
  Job job(Topology::regular(2, 2), 1, two_hops ? NcclWay::own : NcclWay::hierarchical, {}, keeps_launch_order);
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
    auto& communicators = job.ranks[static_cast<std::size_t>(me)].communicators;
    for (int o = 0; o < operations; ++o) {
      auto* values = data[static_cast<std::size_t>(me)].data() + 16 * o;
      const Communicator::Part part{reinterpret_cast<std::byte*>(values), 16};
      const Handler done = [&, me] {
        if (--left > 0) return;
        end = job.loop(me).now();
        for (int other = 0; other < 4; ++other) job.loop(other).stop();
      };
      communicators[first]->run(collective, {&part, 1}, DType::f32, "first", [&, part, done] {
        if (!two_hops) return done();
        communicators[second]->run(collective, {&part, 1}, DType::f32, "second", done);
      });
    }
  };
  for (int me = 0; me < 4; ++me) {
    job.ranks[static_cast<std::size_t>(me)].column->connect([&, me] {
      if (++connected < 4) return;
      begin = job.loop(me).now();
      for (int other = 0; other < 4; ++other) job.loop(other).post([&, other] { start(other); });
    });
  }
  job.simulation.run();
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

TEST_CASE("ranks that start operations of several communicators in different orders do not wait for ever") {
  // They would, if each went by its own order.
  CHECK(ends({0, 1}, {0, 1}));
  CHECK(!ends({0, 1}, {1, 0}));

  for (const std::uint64_t seed : seeds(sanitized ? 20 : 1000)) run_in_any_order(seed);
}

TEST_CASE("what NCCL does inside nodes and across them is under way at a time") {
  constexpr int operations = 8;
  for (const bool two_hops : {false, true}) {
    for (const Collective collective : all_collectives) {
      if (two_hops && collective != Collective::all_reduce) continue;
      CAPTURE(two_hops);
      CAPTURE(static_cast<int>(collective));
      const double alone = seconds_of(collective, two_hops, operations, false);
      const double together = seconds_of(collective, two_hops, operations, true);
      // In units of a phase; messages and handlers take some time, too.
      const int phases = !two_hops && collective == Collective::all_reduce ? 3 : 2;
      CHECK(alone >= 1e-2 * phases * operations);
      CHECK(together < 1e-2 * ((phases - 1) * operations + 1.9));
    }
  }
}

namespace {

/// Two ranks, of which only the first starts an operation; it is stopped where something is thrown.
std::string message_of_failure(Job& job, const std::function<void()>& meanwhile) {
  const std::size_t communicator = job.add_communicator(0, {});
  static std::array<float, 2> values{};
  const Communicator::Part part{reinterpret_cast<std::byte*>(values.data()), values.size()};
  for (int me = 0; me < 2; ++me) {
    job.ranks[static_cast<std::size_t>(me)].column->connect([&, me] {
      if (me != 0) return;
      job.ranks[0].communicators[communicator]->run(Collective::all_reduce, {&part, 1}, DType::f32,
                                                    "reduction of the gradients of h.3", [] {});
      meanwhile();
    });
  }
  try {
    job.simulation.run();
  } catch (const ranvier::Error& error) {
    CHECK(error.code() == ranvier::ErrorCode::transport);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("an error that NCCL meets later is one message with rank, device and operation, and ends what runs") {
  Job job(Topology::regular(2, 1), 1, NcclWay::own);
  const std::string message = message_of_failure(job, [&] {
    CHECK(job.ranks[0].column->waited_for().size() == 1);
    CHECK(job.ranks[0].column->waited_for()[0].peer == 0);  // the other member
    const auto running = job.ranks[0].communicators[0]->running();
    REQUIRE(running.size() == 1);
    CHECK(running[0].what == "reduction of the gradients of h.3, by NCCL with ranks 1, 0 on inline, 1 thread");
    job.loop(0).after(std::chrono::milliseconds(300), [&] {
      dynamic_cast<WorldNccl&>(*job.ranks[0].library).break_with(NcclLibrary::remote_error);
    });
  });
  CHECK(message ==
        "rank 1: reduction of the gradients of h.3 on inline, 1 thread: NCCL, with ranks 1, 0: remote process "
        "exited or "
        "there was a network error; one of them has ended or its network fails, NCCL_DEBUG=WARN says more");
  job.ranks[0].column->close();
  CHECK(job.world.aborted == 1);
  job.ranks[0].column->close();
  CHECK(job.world.aborted == 1);
  job.ranks[1].column->close();  // nothing runs there
  CHECK(job.world.closed == 1);
}

TEST_CASE("a peer that ends while operations are under way on both lanes is one message, and all of them end") {
  Job job(Topology::regular(2, 2), 1, NcclWay::own);
  const std::size_t within = job.add_communicator_of(TeamKind::group, 0);
  const std::size_t between = job.add_communicator_of(TeamKind::replicas, 1);
  std::array<float, 8> values{};
  const Communicator::Part part{reinterpret_cast<std::byte*>(values.data()), 4};
  const Communicator::Part other{reinterpret_cast<std::byte*>(values.data() + 4), 4};
  int connected = 0;
  for (int me = 0; me < 4; ++me) {
    job.ranks[static_cast<std::size_t>(me)].column->connect([&] {
      if (++connected < 4) return;
      auto& communicators = job.ranks[0].communicators;
      communicators[within]->run(Collective::all_reduce, {&part, 1}, DType::f32, "sum inside", [] {});
      communicators[between]->run(Collective::all_reduce, {&other, 1}, DType::f32, "sum across", [] {});
      job.loop(0).after(std::chrono::milliseconds(300), [&] {
        CHECK(job.world.groups == 2);
        CHECK(job.ranks[0].column->waited_for().size() == 2);
        dynamic_cast<WorldNccl&>(*job.ranks[0].library).break_with(NcclLibrary::remote_error);
      });
    });
  }
  std::string message;
  try {
    job.simulation.run();
  } catch (const ranvier::Error& error) {
    CHECK(error.code() == ranvier::ErrorCode::transport);
    message = error.what();
  }
  CAPTURE(message);
  CHECK(message.find("rank 3: sum inside on inline, 1 thread: NCCL, with ranks 3, 2: remote process exited") == 0);
  for (Rank& rank : job.ranks) rank.column->close();
  CHECK(job.world.aborted == 2);
  CHECK(job.world.closed == 6);
  for (Rank& rank : job.ranks) CHECK_NOTHROW(rank.gpu->make_stream("after", StreamWidth::one)->synchronize());
}

TEST_CASE("a rank that does not come to connect is named, or the ranks among which it is") {
  for (const int silent : {0, 1}) {
    CAPTURE(silent);
    Job job(Topology::regular(2, 1), 1, NcclWay::own);
    (void)job.add_communicator(0, {});
    job.ranks[static_cast<std::size_t>(1 - silent)].column->connect([] {});
    std::string message;
    try {
      job.simulation.run();
    } catch (const ranvier::Error& error) {
      CHECK(error.code() == ranvier::ErrorCode::transport);
      message = error.what();
    }
    CAPTURE(message);
    if (silent == 0) {
      CHECK(message.find(
                "rank 1 has not said how to reach it by NCCL: rank 0 has waited for that for 2 s, to connect "
                "the column (--timeout)") == 0);
    } else {
      CHECK(message.find(
                "rank 1 on inline, 1 thread: NCCL has tried to connect the column, ranks 1, 0, for 2 s: one of "
                "them is silent") == 0);
    }
  }
}

TEST_CASE("ranks wait for the first one to say what comes next only where there are several flows") {
  for (const int flows : {1, 2}) {
    CAPTURE(flows);
    Job job(Topology::regular(2, 1), 1, NcclWay::own);
    for (int flow = 0; flow < flows; ++flow) (void)job.add_communicator(flow, {});
    std::array<float, 2> values{};
    const Communicator::Part part{reinterpret_cast<std::byte*>(values.data()), values.size()};
    // The second rank starts an operation, and the first one never does.
    for (int me = 0; me < 2; ++me) {
      job.ranks[static_cast<std::size_t>(me)].column->connect([&, me] {
        if (me == 0) return job.loop(0).stop();
        job.ranks[1].communicators[0]->run(Collective::all_reduce, {&part, 1}, DType::f32, "sum", [] {});
        job.loop(1).after(std::chrono::milliseconds(1), [&] { job.loop(1).stop(); });
      });
    }
    job.simulation.run();
    CHECK(job.world.groups == (flows == 1 ? 1 : 0));
    const auto waited_for = job.ranks[1].column->waited_for();
    REQUIRE(waited_for.size() == 1);
    CHECK(waited_for[0].peer == job.mpi_ranks[0]);
    CHECK(job.transport(1).pending().size() == (flows == 1 ? 0 : 1));
  }
}

TEST_CASE("communicators are connected once for each team, whoever uses them, and closed where nothing runs") {
  Job job(Topology::regular(2, 2), 1, NcclWay::hierarchical);
  for (int number = 0; number < 3; ++number) (void)job.add_communicator(number, {});
  for (int me = 0; me < 4; ++me) {
    job.ranks[static_cast<std::size_t>(me)].column->connect([&, me] { job.loop(me).stop(); });
  }
  job.simulation.run();
  std::sort(job.world.sizes.begin(), job.world.sizes.end());
  CHECK(job.world.sizes == std::vector<int>{2, 2, 2, 2, 4});  // two nodes, two places in them, all
  CHECK_THROWS_WITH_AS((void)job.add_communicator(3, {}), doctest::Contains("after NCCL was connected"),
                       ranvier::Error);
  for (Rank& rank : job.ranks) rank.column->close();
  CHECK(job.world.closed == 4 * 3);
  CHECK(job.world.aborted == 0);
}

TEST_CASE("an operation that NCCL cannot be given is refused by name") {
  Job job(Topology::regular(2, 1), 1, NcclWay::own);
  const std::size_t communicator = job.add_communicator(0, {});
  const Communicator::Part part{nullptr, 7};
  CHECK_THROWS_WITH_AS(job.ranks[0].communicators[communicator]->run(Collective::all_gather, {&part, 1}, DType::f32,
                                                                     "gather of h.3", [] {}),
                       doctest::Contains("gather of h.3: 7 elements do not divide by 2 ranks"), ranvier::Error);
}
