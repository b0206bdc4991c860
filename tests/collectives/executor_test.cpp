#include "collectives/communicators/executor.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;

namespace {

/// Runs `operations` copies of a case concurrently on simulated ranks, in the order of the seed.
template <typename T>
void run_case(const Case& c, int operations, std::uint64_t seed, const GappedRuns& runs = {}) {
  CAPTURE_ALL(seed, runs.run, runs.gap, to_string(c.collective), c.algorithm, c.topology.inner, c.topology.outer,
              c.elements, c.chunks, c.depth, c.dtype);
  std::mt19937_64 random(seed);
  const std::vector<Plan> plans = plans_of(c);
  // Ranks in reverse order and one that is not a member, so that a member's index is not its rank.
  Simulation simulation(c.ranks() + 1, {.seed = seed});
  simulation.loop(c.ranks()).stop();
  std::vector<int> members;
  for (int rank = c.ranks() - 1; rank >= 0; --rank) members.push_back(rank);

  const auto device = make_inline_device();
  const auto stream = device->make_stream("add", StreamWidth::one);
  std::vector<std::vector<std::vector<T>>> before;
  std::vector<std::vector<InRuns<T>>> memory;
  for (int operation = 0; operation < operations; ++operation) {
    before.push_back(random_buffers<T>(c, random));
    auto& of_ranks = memory.emplace_back();
    for (const auto& values : before.back()) of_ranks.emplace_back(values, runs, random);
  }
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<std::vector<std::byte>> staging;
  std::vector<int> left(c.ranks(), operations);
  for (int me = 0; me < c.ranks(); ++me) {
    EventLoop& loop = simulation.loop(members[me]);
    executors.push_back(std::make_unique<Executor>(loop, simulation.transport(members[me]), *stream));
    for (int operation = 0; operation < operations; ++operation) {
      Executor::Operands operands{
          .parts = {{memory[operation][me].data(),
                     std::make_shared<const std::vector<RankSchedule>>(schedules_of(plans, me)), runs.run,
                     runs.stride()}},
          .members = members,
          .me = me,
          .dtype = c.dtype,
          .index = static_cast<std::uint32_t>(operation * plans.size()),
          .depth = c.depth};
      operands.staging = staging.emplace_back(Executor::staging_bytes(operands)).data();
      loop.post([&executors, &left, &loop, operands] {
        executors[operands.me]->run(operands, [&left, &loop, me = operands.me] {
          if (--left[me] == 0) loop.stop();
        });
      });
    }
  }
  simulation.run();
  for (int operation = 0; operation < operations; ++operation) {
    const auto expected = promised(c, before[operation]);
    std::vector<std::vector<T>> after;
    for (const InRuns<T>& of_rank : memory[operation]) {
      after.push_back(of_rank.values());
      CHECK(of_rank.gaps_untouched());
    }
    for (int rank = 0; rank < c.ranks(); ++rank) CHECK(as_promised(c, expected, after, rank));
  }
}

void run_case_of_any_type(const Case& c, int operations, std::uint64_t seed, const GappedRuns& runs = {}) {
  if (c.dtype == DType::f64) return run_case<double>(c, operations, seed, runs);
  with_float_type(c.dtype, [&](auto type) { run_case<decltype(type)>(c, operations, seed, runs); });
}

}  // namespace

TEST_CASE("every plan, size and element type gives the bits of its order of summation") {
  ranvier::tests::Share share(1, 2);
  for (const auto& [collective, algorithm] : all_algorithms())
    for (int ranks = 1; ranks <= max_ranks; ++ranks)
      for (const Topology& topology : topologies_of(ranks))
        for (const std::size_t length : {0, 1, 7, 33})
          for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
            if (!share.takes()) continue;
            run_case_of_any_type({collective, algorithm, topology, length * ranks, 3, 2, dtype}, 1, 17);
          }
}

TEST_CASE("thousands of seeded orders of messages give the same bits") {
  const auto algorithms = all_algorithms();
  for (const std::uint64_t seed : seeds(4000)) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::size_t most) { return static_cast<int>(random() % (most + 1)); };
    Case c;
    std::tie(c.collective, c.algorithm) = algorithms[up_to(algorithms.size() - 1)];
    const auto topologies = topologies_of(1 + up_to(8));
    c.topology = topologies[up_to(topologies.size() - 1)];
    c.elements = static_cast<std::size_t>(c.ranks()) * up_to(40);
    c.chunks = 1 + up_to(5);
    c.depth = 1 + up_to(3);
    c.dtype = std::array{DType::f32, DType::bf16, DType::f16, DType::f64}[up_to(3)];
    const GappedRuns runs =
        up_to(1) == 0 ? GappedRuns{} : GappedRuns{1 + static_cast<std::size_t>(up_to(40)), random() % 20};
    run_case_of_any_type(c, 1 + up_to(2), seed, runs);
  }
}

TEST_CASE("elements in runs get the same bits, and the gaps between runs stay unchanged") {
  ranvier::tests::Share share(1, 2);
  for (const auto& [collective, algorithm] : all_algorithms())
    for (int ranks = 1; ranks <= max_ranks; ++ranks)
      for (const Topology& topology : topologies_of(ranks))
        for (const GappedRuns& runs :
             {GappedRuns{1, 1}, GappedRuns{7, 0}, GappedRuns{7, 30}, GappedRuns{5, 2}, GappedRuns{1000, 9}}) {
          for (const std::size_t length : {0, 7, 35}) {
            if (!share.takes()) continue;
            run_case<float>({collective, algorithm, topology, length * ranks, 3, 2}, 1, 17, runs);
          }
        }
}

TEST_CASE("a step has the same number of messages and pieces of work for any number of runs") {
  std::vector<std::size_t> receives(4), work(4);  // by rank, at 8 runs
  for (const std::size_t runs : {8, 64, 512}) {
    CAPTURE(runs);
    const int ranks = 4;
    const Case c{Collective::all_reduce, "recursive", Topology::regular(ranks, 1), runs * 4096, 1, 1};
    const std::vector<Plan> plans = plans_of(c);
    Simulation simulation(ranks, {});
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Executor>> executors;
    std::vector<std::vector<float>> memory(ranks, std::vector<float>(runs * 5000));
    std::vector<std::vector<std::byte>> staging(ranks);
    for (int me = 0; me < ranks; ++me) {
      devices.push_back(make_inline_device());
      streams.push_back(devices.back()->make_stream("add", StreamWidth::one));
      executors.push_back(
          std::make_unique<Executor>(simulation.loop(me), simulation.transport(me), *streams.back()));
      Executor::Operands operands{
          .parts = {{reinterpret_cast<std::byte*>(memory[me].data()),
                     std::make_shared<const std::vector<RankSchedule>>(schedules_of(plans, me)), 4096, 5000}},
          .members = {0, 1, 2, 3},
          .me = me};
      staging[me].resize(Executor::staging_bytes(operands));
      operands.staging = staging[me].data();
      simulation.loop(me).post([&, me, operands] {
        executors[me]->run(operands, [&, me] { simulation.loop(me).stop(); });
        // The first step: sends half of the buffer to one peer, and receives the other half from it.
        const auto pending = simulation.transport(me).pending();
        const auto posted =
            std::count_if(pending.begin(), pending.end(), [](const auto& each) { return each.receives; });
        CHECK(posted <= 3);  // two steps, one of which may wrap around the end of the buffer
        if (runs == 8) receives[me] = static_cast<std::size_t>(posted);
        CHECK(receives[me] == static_cast<std::size_t>(posted));
      });
    }
    simulation.run();
    for (int me = 0; me < ranks; ++me) {
      if (runs == 8) work[me] = streams[me]->done();
      CHECK(streams[me]->done() == work[me]);
    }
  }
}

TEST_CASE("sums have the same bits for any number of chunks and any depth") {
  // Follows from the single order of summation: the reference above does not depend on chunks.
  for (const auto& [collective, algorithm] : all_algorithms())
    for (const int chunks : {1, 2, 5, 50})
      for (const int depth : {1, 2, 60})
        run_case<float>({collective, algorithm, Topology::regular(3, 2), 6 * 12, chunks, depth}, 1, 5);
}
