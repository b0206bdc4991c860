// Collectives in virtual time: plans step by step, and NCCL's by formula, compared with times computed by hand.
#include "collectives/nccl/phantom_nccl.hpp"
#include "collectives/plans/link_file.hpp"
#include "runtime/base/error.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::collectives;
using runtime::DType;
using runtime::Duration;
using namespace std::chrono_literals;

namespace {

constexpr Link fast{.latency_seconds = 10e-6, .bytes_per_second = 4e9, .node_bytes_per_second = 0};
constexpr Link slow{.latency_seconds = 20e-6, .bytes_per_second = 1e9, .node_bytes_per_second = 1e9};

/// Communicators of all ranks of a cluster. `held`: devices that operations block, by rank, if any.
struct Members {
  PhantomNccl nccl;
  std::vector<std::unique_ptr<CommunicatorFactory>> sources;
  std::vector<std::unique_ptr<Communicator>> all;

  Members(runtime::Simulation& cluster, const Topology& topology, NcclMode way = NcclMode::own,
          const std::vector<runtime::PhantomDevice*>& held = {})
      : nccl(cluster, {way, way, way}) {
    std::vector<int> ranks(std::size_t(topology.ranks()));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (const int rank : ranks) {
      sources.push_back(nccl.source(cluster.loop(rank), held.empty() ? nullptr : held[std::size_t(rank)]));
      all.push_back(sources.back()->communicator(
          TeamKind::column, 0, {.team = test::team_of(topology), .me = rank, .ranks = ranks, .choice = {}}));
    }
  }

  void run(int rank, Collective collective, std::size_t elements, runtime::Handler done) {
    const Communicator::Operand part{.data = nullptr, .elements = elements};
    all[std::size_t(rank)]->run(collective, {&part, 1}, DType::f32, "it", std::move(done));
  }
};

/// End time of an operation of `elements` floats that all ranks start at once, by NCCL's formula.
Duration nccl_time(const Topology& topology, Collective collective, std::size_t elements, NcclMode way) {
  runtime::Simulation cluster({.node_of = topology.node_of, .links = {fast, slow}});
  Members members(cluster, topology, way);
  std::vector<Duration> ends(members.all.size());
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    members.run(rank, collective, elements, [&cluster, &ends, rank] {
      ends[std::size_t(rank)] = cluster.time().now();
      cluster.loop(rank).stop();
    });
    CHECK(members.all[std::size_t(rank)]->running().size() == 1);
  }
  cluster.run();
  for (const Duration end : ends) CHECK(end == ends.front());
  for (const auto& member : members.all) CHECK(member->running().empty());
  return ends.front();
}

}  // namespace

TEST_CASE("a ring all-reduce of four ranks takes six steps of a quarter each") {
  constexpr int ranks = 4;
  constexpr std::size_t elements = 4000;  // a quarter of them takes 1 µs
  runtime::Simulation cluster({.node_of = {0, 0, 0, 0}, .links = {fast, {}}});
  const tests::CostsOf costs([](const runtime::WorkCost&) { return 0; });
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<std::unique_ptr<runtime::Stream>> streams;
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<std::byte> memory(elements * sizeof(float)), staging(elements * sizeof(float));
  std::vector<Duration> ends(ranks);
  const Plan plan = algorithm(Collective::all_reduce, "ring").plan(Topology::regular(ranks, 1), elements);
  for (int rank = 0; rank < ranks; ++rank) {
    devices.push_back(make_phantom_device(cluster.time(), cluster.cores(rank), cluster.space(), {.costs = &costs}));
    streams.push_back(devices.back()->make_stream("reduce", runtime::StreamWidth::one));
    executors.push_back(std::make_unique<Executor>(cluster.loop(rank), cluster.transport(rank), *streams.back()));
    const auto schedules = std::make_shared<const std::vector<RankSchedule>>(1, schedule_of(plan, rank));
    executors.back()->run({.parts = {{memory.data(), schedules}},
                           .members = {0, 1, 2, 3},
                           .me = rank,
                           .staging = staging.data(),
                           .dtype = DType::f32,
                           .depth = 1},
                          [&, rank] {
                            ends[std::size_t(rank)] = cluster.time().now();
                            cluster.loop(rank).stop();
                          });
  }
  cluster.run();
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(ends[std::size_t(rank)] == 6 * (10us + 1us));
    CHECK(cluster.network().sent(rank).bytes_intra == 6 * 4000);
  }
}

TEST_CASE("operations of NCCL take the time of rings") {
  constexpr std::size_t elements = 1000000;  // 1 ms on a fast link, 4 ms on a slow one
  const Topology inside = Topology::regular(4, 1), across = Topology::regular(1, 4), both = Topology::regular(2, 2);
  CHECK(nccl_time(inside, Collective::all_gather, elements, NcclMode::own) == 750us + 3 * 10us);
  CHECK(nccl_time(inside, Collective::reduce_scatter, elements, NcclMode::own) == 750us + 3 * 10us);
  CHECK(nccl_time(inside, Collective::all_reduce, elements, NcclMode::own) == 1500us + 6 * 10us);
  CHECK(nccl_time(across, Collective::all_gather, elements, NcclMode::own) == 3ms + 3 * 20us);
  CHECK(nccl_time(across, Collective::all_reduce, elements, NcclMode::own) == 6ms + 4 * 20us);  // by a tree
  // Each node's NIC carries three quarters once; two intra-node hops and one inter-node hop are sequential.
  CHECK(nccl_time(both, Collective::all_gather, elements, NcclMode::own) == 3ms + 20us + 2 * 10us);
  // Both ranks of a node send half of a half across nodes, sharing the NIC, and then half inside.
  CHECK(nccl_time(both, Collective::all_gather, elements, NcclMode::hierarchical) == 2ms + 20us + 500us + 10us);
  CHECK(nccl_time(both, Collective::reduce_scatter, elements, NcclMode::hierarchical) == 2ms + 20us + 500us + 10us);
  CHECK(nccl_time(both, Collective::all_reduce, elements, NcclMode::hierarchical) ==
        4ms + 2 * 20us + 2 * (500us + 10us));
  // A plan's time is the estimate that choices are based on: three steps of 1 MB, in one chunk.
  CHECK(nccl_time(across, Collective::all_gather, elements / 4, NcclMode::plan) == 3 * (20us + 250us));
}

TEST_CASE("an all-to-all of NCCL sends half of its buffer to the other ranks, over the links of their nodes") {
  constexpr std::size_t elements = 1000000;  // each rank sends three quarters of 2 MB
  const auto is_close = [](Duration time, Duration expected) {
    return time - expected <= 1ns && expected - time <= 1ns;
  };
  const auto time = [](const Topology& topology) {
    return nccl_time(topology, Collective::all_to_all, elements, NcclMode::own);
  };
  CHECK(is_close(time(Topology::regular(4, 1)), 375us + 3 * 10us));
  CHECK(is_close(time(Topology::regular(1, 4)), 1500us + 3 * 20us));
  // A node's NIC carries two thirds of the bytes of both ranks.
  CHECK(is_close(time(Topology::regular(2, 2)), 2ms + 3 * 20us));
}

TEST_CASE("an all-to-all of NCCL occupies the links, so that another team's waits for them") {
  const std::vector<int> first{0, 2}, second{1, 3};
  runtime::VirtualNetwork network({0, 0, 1, 1}, {fast, slow});
  const Duration alone = network.exchange(first, 1e6, Duration{});
  CHECK(alone == 1ms);
  CHECK(network.exchange(second, 1e6, Duration{}) == 2ms);  // through the same NICs
  CHECK(network.sent(0).ring_bytes_inter == 1e6);
  CHECK(network.sent(0).ring_bytes_intra == 0);
  CHECK(network.exchange(first, 1e6, Duration{}) > 2ms);
}

TEST_CASE("an operation of NCCL starts when its last rank does, and after the previous one") {
  runtime::Simulation cluster({.node_of = {0, 0}, .links = {fast, {}}});
  Members members(cluster, Topology::regular(2, 1));
  std::vector<Duration> ends;
  const auto run = [&](int rank, bool last) {
    members.run(rank, Collective::all_gather, 1000000, [&, rank, last] {
      ends.push_back(cluster.time().now());
      if (last) cluster.loop(rank).stop();
    });
  };
  run(0, false);
  run(0, true);
  cluster.loop(1).after(2ms, [&] {
    run(1, false);
    run(1, true);
  });
  int at_once = 0;
  members.run(0, Collective::all_gather, 0, [&] { ++at_once; });
  cluster.run();
  CHECK(at_once == 1);
  CHECK(ends == std::vector<Duration>{2510us, 2510us, 3020us, 3020us});

  members.run(0, Collective::all_gather, 1000000, [] {});
  CHECK_THROWS_AS(members.run(1, Collective::all_reduce, 1000000, [] {}), Error);
}

TEST_CASE("a blocked device computes nothing while its rank is in an operation, and as usual before and after") {
  // Operations of 100 us start at 50 us and at 300 us, concurrently with work of 200 us and, later, of 30 us.
  for (const bool overlap : {true, false}) {
    CAPTURE(overlap);
    runtime::Simulation cluster({.node_of = {0, 0}, .links = {{.bytes_per_second = 1e9}, {}}});
    const tests::CostsOf costs([](const runtime::WorkCost& cost) { return cost.bytes; });  // a byte a nanosecond
    std::vector<std::unique_ptr<runtime::PhantomDevice>> devices;
    std::vector<std::unique_ptr<runtime::Stream>> streams;
    std::vector<runtime::PhantomDevice*> held;
    for (const int rank : {0, 1}) {
      devices.push_back(make_phantom_device(cluster.time(), cluster.cores(rank), cluster.space(),
                                            {.apart = true, .costs = &costs}));
      streams.push_back(devices.back()->make_stream("compute", runtime::StreamWidth::whole));
      held.push_back(overlap ? nullptr : devices.back().get());
    }
    Members members(cluster, Topology::regular(2, 1), NcclMode::own, held);
    std::vector<Duration> computed, gathered;
    for (const int rank : {0, 1}) {
      const auto compute = [&, rank](double bytes) {
        streams[std::size_t(rank)]->launch({.bytes = bytes, .shape = {}}, [](runtime::ComputePool&) {});
        streams[std::size_t(rank)]->call_back([&] { computed.push_back(cluster.time().now()); });
      };
      cluster.loop(rank).after(0us, [compute] { compute(200e3); });
      for (const auto begin : {50us, 300us})
        cluster.loop(rank).after(begin, [&, rank] {
          // Each rank sends half.
          members.run(rank, Collective::all_gather, 50000, [&] { gathered.push_back(cluster.time().now()); });
        });
      cluster.loop(rank).after(310us, [compute] { compute(30e3); });
      cluster.loop(rank).after(1ms, [&, rank] { cluster.loop(rank).stop(); });
    }
    cluster.run();
    CHECK(gathered == std::vector<Duration>{150us, 150us, 400us, 400us});
    if (overlap) {
      CHECK(computed == std::vector<Duration>{200us, 200us, 340us, 340us});
    } else {  // 200 us, interrupted for 100 us, and 30 us after the second operation
      CHECK(computed == std::vector<Duration>{300us, 300us, 430us, 430us});
    }
    for (const auto& device : devices) CHECK(device->busy() == 230us);
  }
}
