#include "tests/collectives/mpi_rank.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;
using Rank = MpiRank;

namespace {

/// Runs the case `operations` times concurrently. All ranks draw the same numbers.
template <typename T>
void run_case(Rank& rank, const Case& c, int operations, std::uint64_t seed) {
  CAPTURE_ALL(to_string(c.collective), c.algorithm, c.topology.inner, c.elements, c.chunks, c.depth, c.dtype);
  std::mt19937_64 random(seed);
  const int me = rank.transport.rank();
  const auto schedules = std::make_shared<const std::vector<RankSchedule>>(schedules_of(plans_of(c), me));
  std::vector<int> members(c.ranks());
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::vector<std::vector<T>>> before;
  for (int operation = 0; operation < operations; ++operation) before.push_back(random_buffers<T>(c, random));
  auto after = before;
  std::vector<std::vector<std::byte>> staging;
  int left = operations;
  for (int operation = 0; operation < operations; ++operation) {
    Executor::Operands operands{.parts = {{reinterpret_cast<std::byte*>(after[operation][me].data()), schedules}},
                                .members = members,
                                .me = me,
                                .dtype = c.dtype,
                                .index = static_cast<std::uint32_t>(operation * schedules->size()),
                                .depth = c.depth};
    operands.staging = staging.emplace_back(Executor::staging_bytes(operands)).data();
    rank.executor.run(std::move(operands), [&] {
      if (--left == 0) rank.loop.stop();
    });
  }
  CHECK(left == operations);
  rank.loop.run();
  for (int operation = 0; operation < operations; ++operation)
    CHECK(as_promised(c, promised(c, before[operation]), after[operation], me));
}

}  // namespace

TEST_CASE("collectives between processes give the bits of their order of summation") {
  Rank rank;
  const int ranks = rank.transport.ranks();
  ranvier::tests::Share share(1, 4);
  for (const auto& [collective, algorithm] : all_algorithms())
    for (const Topology& topology : topologies_of(ranks)) {
      for (const std::size_t length : {0, 1, 1000, 9001})
        for (const int chunks : {1, 4}) {
          if (!share.takes()) continue;
          run_case<float>(rank, {collective, algorithm, topology, length * ranks, chunks, 2, DType::f32}, 2,
                          length);
        }
      if (share.takes())
        run_case<Bf16>(rank, {collective, algorithm, topology, 777u * ranks, 3, 3, DType::bf16}, 3, 1);
      if (share.takes())
        run_case<F16>(rank, {collective, algorithm, topology, 777u * ranks, 3, 1, DType::f16}, 3, 2);
      if (share.takes())
        run_case<double>(rank, {collective, algorithm, topology, 777u * ranks, 3, 2, DType::f64}, 3, 3);
    }
}

TEST_CASE("consecutive collectives leave nothing outstanding") {
  Rank rank;
  const int ranks = rank.transport.ranks();
  const auto algorithms = all_algorithms();
  const auto seeds = static_cast<std::uint64_t>(ranvier::tests::effort(200, 200, 60));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto& [collective, algorithm] = algorithms[seed % algorithms.size()];
    const auto topologies = topologies_of(ranks);
    run_case<float>(rank, {collective, algorithm, topologies[seed % topologies.size()], 60u * ranks, 2, 2}, 1,
                    seed);
  }
  CHECK(rank.transport.pending().empty());
}
