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

  Job(const Topology& of_topology, std::uint64_t seed, NcclWay way, const PlanChoice& of_choice = {})
      : simulation(of_topology.ranks() + 1, {.seed = seed}), world(seed), topology(of_topology), choice(of_choice) {
    simulation.loop(topology.ranks()).stop();
    for (int rank = topology.ranks() - 1; rank >= 0; --rank) mpi_ranks.push_back(rank);
    for (int me = 0; me < topology.ranks(); ++me) {
      Rank& rank = ranks.emplace_back();
      rank.library = world.make_library();
      rank.column = std::make_unique<NcclColumn>(
          loop(me), transport(me), world.make_stream(me), *rank.library,
          NcclColumn::Options{.ranks = mpi_ranks, .ways = {way, way, way}, .timeout = std::chrono::seconds(2)});
    }
  }
  ~Job() {
    for (Rank& rank : ranks) rank.column->close();
  }

  EventLoop& loop(int me) { return simulation.loop(mpi_ranks[static_cast<std::size_t>(me)]); }
  Transport& transport(int me) { return simulation.transport(mpi_ranks[static_cast<std::size_t>(me)]); }

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
  std::vector<std::size_t> lengths;  ///< of a piece of each part
  std::vector<Runs> runs = {};       ///< of each part; empty: all are contiguous

  [[nodiscard]] Runs runs_of(std::size_t part) const { return runs.empty() ? Runs{} : runs[part]; }
};

enum class Numbers { any, whole };  ///< sums of small whole numbers are the same in any order

/// Runs all calls at a time and compares the bits of each with the sums of the named algorithm.
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
          const Runs runs = calls[number].runs_of(part);
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

/// Whether two ranks that each start one operation of two communicators, in these orders, come to an end.
bool ends(std::array<int, 2> order_of_0, std::array<int, 2> order_of_1) {
  NcclWorld world(1);
  std::array<float, 4> values{};
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<NcclLibrary>> libraries;
  std::array<std::array<NcclLibrary::Handle, 2>, 2> handles{};
  for (int rank = 0; rank < 2; ++rank) {
    streams.push_back(world.make_stream(rank));
    libraries.push_back(world.make_library());
  }
  for (std::size_t communicator = 0; communicator < 2; ++communicator) {
    NcclLibrary::Id id;
    (void)libraries[0]->make_id(id);
    for (int rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      (void)libraries[r]->connect(handles[r][communicator], id, 2, rank, *streams[r]);
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const int communicator : rank == 0 ? order_of_0 : order_of_1) {
      const auto c = static_cast<std::size_t>(communicator);
      launch_sum(*libraries[rank], handles[rank][c], *streams[rank], values[2 * rank + c]);
    }
  }
  try {
    streams[0]->synchronize();
    return true;
  } catch (const ranvier::Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("ranks that start operations of several communicators in different orders do not wait for ever") {
  // They would, if each went by its own order.
  CHECK(ends({0, 1}, {0, 1}));
  CHECK(!ends({0, 1}, {1, 0}));

  constexpr int flows = 3, operations = 4, ranks = 3;
  for (const std::uint64_t seed : seeds(sanitized ? 4 : 20)) {
    CAPTURE(seed);
    Job job(Topology::regular(ranks, 1), seed, NcclWay::own);
    for (int flow = 0; flow < flows; ++flow) (void)job.add_communicator(flow, {});
    std::mt19937_64 random(seed);
    std::vector<float> data(ranks * flows * operations * ranks);
    std::array<int, ranks> left{};
    left.fill(flows * operations);
    for (int me = 0; me < ranks; ++me) {
      // Each flow's operations in order, the flows in any.
      std::vector<int> order;
      for (int flow = 0; flow < flows; ++flow) order.insert(order.end(), operations, flow);
      std::shuffle(order.begin(), order.end(), random);
      job.ranks[static_cast<std::size_t>(me)].column->connect([&, me, order] {
        std::array<int, flows> started{};
        for (const int flow : order) {
          const int operation = flow * operations + started[static_cast<std::size_t>(flow)]++;
          float* const values = &data[static_cast<std::size_t>((me * flows * operations + operation) * ranks)];
          std::fill_n(values, ranks, static_cast<float>(operation + 100 * me));
          job.loop(me).post([&, me, flow, values] {
            const Communicator::Part part{reinterpret_cast<std::byte*>(values), ranks};
            job.ranks[static_cast<std::size_t>(me)].communicators[static_cast<std::size_t>(flow)]->run(
                Collective::all_reduce, {&part, 1}, DType::f32, "sum", [&, me] {
                  if (--left[static_cast<std::size_t>(me)] == 0) job.loop(me).stop();
                });
          });
        }
      });
    }
    job.simulation.run();
    bool equal = true;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto operation = static_cast<float>(i / ranks % (flows * operations));
      equal = equal && data[i] == 3 * operation + 300;
    }
    CHECK(equal);
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
    CHECK(running[0] == "reduction of the gradients of h.3, by NCCL with ranks 1, 0 on inline, 1 thread");
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
