#include "collectives/nccl/nccl_column.hpp"

#include "runtime/base/error.hpp"
#include "tests/collectives/calls.hpp"
#include "tests/collectives/nccl_job.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;

namespace {

/// Runs all calls concurrently and compares the bits of each with the sums of the named algorithm.
template <typename T>
void run_calls(const Topology& topology, NcclMode way, const PlanChoice& choice, const std::vector<Call>& calls,
               DType dtype, Numbers numbers, std::uint64_t seed) {
  CAPTURE_ALL(seed, topology.inner, topology.outer, static_cast<int>(way), choice.all_reduce);
  std::mt19937_64 random(seed);
  NcclJob job(topology, seed, way, choice);
  const Program program{.topology = topology, .choice = choice, .dtype = dtype, .calls = calls};
  const std::size_t communicator = job.add_communicator(7, program.shapes());
  ProgramMemory<T> memory(program, random, numbers);
  job.connect([&](int me) { memory.post(me, job.communicator(me, communicator), job.loop(me)); });
  job.simulation.run();
  for (const NcclRank& rank : job.ranks) {
    CHECK(rank.communicators[communicator]->running().empty());
    CHECK(rank.column->waited_for().empty());
  }
  memory.check();
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

TEST_CASE("NCCL's own collectives, flat and with communicators inside and across nodes, give every sum") {
  ranvier::tests::Share share(1, 7);
  for (int ranks = 1; ranks <= 6; ++ranks)
    for (const Topology& topology : topologies_of(ranks))
      for (const NcclMode way : {NcclMode::own, NcclMode::hierarchical}) {
        if (!share.takes()) continue;
        run_calls<float>(topology, way, {}, calls_of_all_kinds(), DType::f32, Numbers::whole,
                         static_cast<std::uint64_t>(ranks));
      }
  run_calls<Bf16>(Topology::regular(2, 2), NcclMode::own, {}, calls_of_all_kinds(), DType::bf16, Numbers::whole, 1);
}

TEST_CASE(
    "a plan on NCCL's sends and receives has the bits of that plan, for every algorithm and number of chunks") {
  ranvier::tests::Share share(1, 10);
  for (const Topology& topology : {Topology::regular(4, 1), Topology::regular(2, 2), Topology::regular(2, 3)})
    for (std::size_t number = 0; number < 5; ++number)
      for (const std::size_t chunk_bytes : {24, 1000}) {
        if (!share.takes()) continue;
        PlanChoice choice = choice_of(number, chunk_bytes);
        choice.depth = 2;
        run_calls<float>(topology, NcclMode::plan, choice, calls_of_all_kinds(), DType::f32, Numbers::any,
                         chunk_bytes);
      }
  run_calls<F16>(Topology::regular(2, 2), NcclMode::plan, {}, calls_of_all_kinds(), DType::f16, Numbers::any, 3);
}

TEST_CASE("an NCCL that sums around a ring gives the bits of the ring's plan") {
  std::vector<Call> calls;
  for (const Collective collective : all_collectives) calls.push_back({collective, {1, 7, 33}});
  for (const std::uint64_t seed : seeds(4)) {
    run_calls<float>(Topology::regular(4, 1), NcclMode::own, {}, calls, DType::f32, Numbers::any, seed);
    run_calls<Bf16>(Topology::regular(3, 1), NcclMode::own, {}, calls, DType::bf16, Numbers::any, seed);
  }
}

TEST_CASE("several parts are one launch") {
  NcclJob job(Topology::regular(2, 1), 1, NcclMode::own);
  const std::size_t communicator = job.add_communicator(0, {});
  std::vector<std::vector<float>> data(2, std::vector<float>(12, 1.0f));
  job.connect([&](int me) {
    auto* values = reinterpret_cast<std::byte*>(data[static_cast<std::size_t>(me)].data());
    const std::vector<Communicator::Operand> parts = {{values, 4}, {values + 16, 4}, {values + 32, 4}};
    job.communicator(me, communicator).run(Collective::all_reduce, parts, DType::f32, "sum", [&, me] {
      job.loop(me).stop();
    });
  });
  job.simulation.run();
  CHECK(job.world.groups == 2);
  CHECK(job.world.calls == 6);
  CHECK(data == std::vector<std::vector<float>>(2, std::vector<float>(12, 2.0f)));
}

namespace {

/// Message of the error that ends the job.
std::string transport_error(NcclJob& job) {
  const ranvier::Error error = ranvier::tests::error_of([&] { job.simulation.run(); });
  CHECK(error.code() == ranvier::ErrorCode::transport);
  return error.what();
}

/// Two ranks, of which only the first starts an operation; it is stopped if an error is thrown.
std::string message_of_failure(NcclJob& job, const std::function<void()>& meanwhile) {
  const std::size_t communicator = job.add_communicator(0, {});
  static std::array<float, 2> values{};
  job.connect([&](int me) {
    if (me != 0) return;
    job.run(0, communicator, Collective::all_reduce, values, "reduction of the gradients of h.3");
    meanwhile();
  });
  return transport_error(job);
}

}  // namespace

TEST_CASE(
    "an asynchronous error of NCCL is one message with rank, device and operation, and aborts running operations") {
  NcclJob job(Topology::regular(2, 1), 1, NcclMode::own);
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
        "there was a network error; a peer exited or its network failed, NCCL_DEBUG=WARN prints details");
  job.ranks[0].column->close();
  CHECK(job.world.aborted == 1);
  job.ranks[0].column->close();
  CHECK(job.world.aborted == 1);
  job.ranks[1].column->close();  // no operation is running on this rank
  CHECK(job.world.closed == 1);
}

TEST_CASE("a peer that ends during operations on both lanes is one message, and all operations end") {
  NcclJob job(Topology::regular(2, 2), 1, NcclMode::own);
  const std::size_t within = job.add_communicator_of(TeamKind::group, 0);
  const std::size_t between = job.add_communicator_of(TeamKind::replicas, 1);
  std::array<float, 8> values{};
  int connected = 0;
  job.connect([&](int) {
    if (++connected < 4) return;
    job.run(0, within, Collective::all_reduce, std::span(values).first(4), "sum inside");
    job.run(0, between, Collective::all_reduce, std::span(values).last(4), "sum across");
    job.loop(0).after(std::chrono::milliseconds(300), [&] {
      CHECK(job.world.groups == 2);
      CHECK(job.ranks[0].column->waited_for().size() == 2);
      dynamic_cast<WorldNccl&>(*job.ranks[0].library).break_with(NcclLibrary::remote_error);
    });
  });
  const std::string message = transport_error(job);
  CAPTURE(message);
  CHECK(message.find("rank 3: sum inside on inline, 1 thread: NCCL, with ranks 3, 2: remote process exited") == 0);
  for (NcclRank& rank : job.ranks) rank.column->close();
  CHECK(job.world.aborted == 2);
  CHECK(job.world.closed == 6);
  for (NcclRank& rank : job.ranks) CHECK_NOTHROW(rank.gpu->make_stream("after", StreamWidth::one)->synchronize());
}

TEST_CASE("a rank that does not connect is named, or the ranks that may be missing are") {
  for (const int silent : {0, 1}) {
    CAPTURE(silent);
    NcclJob job(Topology::regular(2, 1), 1, NcclMode::own);
    (void)job.add_communicator(0, {});
    job.connect([](int) {}, 1 - silent);
    const std::string message = transport_error(job);
    CAPTURE(message);
    if (silent == 0) {
      CHECK(message.find("rank 1 has not sent its NCCL address: rank 0 has waited 2 s to connect "
                         "the column (`timeout`)") == 0);
    } else {
      CHECK(message.find(
                "rank 1 on inline, 1 thread: NCCL did not connect the column, ranks 1, 0, within 2 s: one of "
                "them is silent") == 0);
    }
  }
}

TEST_CASE("each team's communicators are connected once, for all of their users, and closed when nothing runs") {
  NcclJob job(Topology::regular(2, 2), 1, NcclMode::hierarchical);
  for (int number = 0; number < 3; ++number) (void)job.add_communicator(number, {});
  job.connect([&](int me) { job.loop(me).stop(); });
  job.simulation.run();
  std::sort(job.world.sizes.begin(), job.world.sizes.end());
  CHECK(job.world.sizes == std::vector<int>{2, 2, 2, 2, 4});  // two nodes, two positions in them, and all ranks
  CHECK_THROWS_WITH_AS((void)job.add_communicator(3, {}), doctest::Contains("after NCCL was connected"),
                       ranvier::Error);
  for (NcclRank& rank : job.ranks) rank.column->close();
  CHECK(job.world.closed == 4 * 3);
  CHECK(job.world.aborted == 0);
}

TEST_CASE("an operation that NCCL does not support is refused by name") {
  NcclJob job(Topology::regular(2, 1), 1, NcclMode::own);
  const std::size_t communicator = job.add_communicator(0, {});
  std::array<float, 7> values{};
  CHECK_THROWS_WITH_AS(job.run(0, communicator, Collective::all_gather, values, "gather of h.3"),
                       doctest::Contains("gather of h.3: 7 elements are not divisible by 2 ranks"), ranvier::Error);
}
