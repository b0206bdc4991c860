#include "collectives/communicators/executor.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;

namespace {

/// Runs a plan on simulated ranks with these buffers, in the order of the seed. Calls `started` with each rank when its
/// part has started. Returns the number of pieces of work on each rank's stream.
template <typename T>
std::vector<std::uint64_t> run_plan(
    const Plan& plan, std::vector<std::vector<T>>& buffers, std::uint64_t seed, const GappedRuns& runs = {},
    const std::function<void(Transport& transport, std::size_t me)>& started = [](Transport&, std::size_t) {}) {
  const std::size_t ranks = buffers.size();
  Simulation simulation(static_cast<int>(ranks), {.seed = seed});
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<std::vector<std::byte>> staging;
  for (std::size_t me = 0; me < ranks; ++me) {
    EventLoop& loop = simulation.loop(members[me]);
    devices.push_back(make_inline_device());
    streams.push_back(devices.back()->make_stream("add", StreamWidth::one));
    executors.push_back(std::make_unique<Executor>(loop, simulation.transport(members[me]), *streams.back()));
    const auto schedules = std::make_shared<const std::vector<RankSchedule>>(1, schedule_of(plan, members[me]));
    Executor::Operands operands{
        .parts = {{reinterpret_cast<std::byte*>(buffers[me].data()), schedules, runs.run, runs.stride()}},
        .members = members,
        .me = members[me],
        .dtype = dtype_of<T>};
    operands.staging = staging.emplace_back(Executor::staging_bytes(operands)).data();
    loop.post([&, me, operands] {
      executors[me]->run(operands, [&loop] { loop.stop(); });
      started(simulation.transport(members[me]), me);
    });
  }
  simulation.run();
  std::vector<std::uint64_t> work;
  for (const auto& stream : streams) work.push_back(stream->done());
  return work;
}

}  // namespace

TEST_CASE("a tree gives the bits of its order of summation; plan_communicator_test.cpp has the other algorithms") {
  for (int ranks = 1; ranks <= max_ranks; ++ranks)
    for (const std::size_t length : {0, 1, 7, 33})
      for (const DType dtype : number_types)
        for (const std::uint64_t seed : {1, 2, 3})
          with_number_type(dtype, [&](auto type) {
            CAPTURE_ALL(ranks, length, dtype, seed);
            const Case c{Collective::all_reduce, "tree", Topology::regular(ranks, 1), length * ranks};
            std::mt19937_64 random(seed);
            const auto before = random_buffers<decltype(type)>(c, random);
            auto after = before;
            run_plan(plan_of(c), after, seed);
            for (int rank = 0; rank < ranks; ++rank) CHECK(as_promised(c, promised(c, before), after, rank));
          });
}

TEST_CASE("a step has the same number of messages and pieces of work for any number of runs") {
  std::vector<std::ptrdiff_t> receives(4);  // by rank, at 8 runs
  std::vector<std::uint64_t> work;
  for (const std::size_t runs : {8, 64, 512}) {
    CAPTURE(runs);
    const Plan plan = plan_of({Collective::all_reduce, "recursive", Topology::regular(4, 1), runs * 4096});
    std::vector<std::vector<float>> buffers(4, std::vector<float>(runs * 5000));
    const auto done = run_plan(plan, buffers, 0, {4096, 904}, [&](Transport& transport, std::size_t me) {
      // The first step: sends half of the buffer to one peer, and receives the other half from it.
      const auto pending = transport.pending();
      const auto posted =
          std::count_if(pending.begin(), pending.end(), [](const auto& each) { return each.receives; });
      CHECK(posted <= 3);  // two steps, one of which may wrap around the end of the buffer
      if (runs == 8) receives[me] = posted;
      CHECK(receives[me] == posted);
    });
    if (runs == 8) work = done;
    CHECK(done == work);
  }
}
