// Time of one collective on machines of a profile, by every algorithm: plans message by message in virtual time, and
// NCCL's algorithms by the formulas of predictions. Prints a JSON object of milliseconds by name.
//
//   collective_times PROFILE NODES RANKS_OF_A_NODE all-gather|reduce-scatter|all-reduce BYTES [RANK_RATE NODE_RATE]
//
// The rates, in bytes per second, replace the profile's rates of links between nodes.
#include "collectives/communicators/executor.hpp"
#include "collectives/nccl/phantom_nccl.hpp"
#include "runtime/base/error.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

using namespace ranvier;
using namespace ranvier::collectives;

namespace {

constexpr std::size_t chunks_at_most = 64;

struct Job {
  runtime::MachineProfile profile;
  Topology topology;
  Collective collective = Collective::all_gather;
  std::size_t bytes = 0;
};

std::vector<int> all_ranks(const Job& job) {
  std::vector<int> ranks(static_cast<std::size_t>(job.topology.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

runtime::Simulation cluster_of(const Job& job) {
  return runtime::Simulation({.node_of = job.topology.node_of,
                              .links = job.profile.links,
                              .handler_seconds = job.profile.handler_seconds,
                              .slow_nodes = {}});
}

/// When the last rank of a collective that all begin at once is done.
double ends(runtime::Simulation& cluster, int ranks, const std::function<void(int, runtime::Handler)>& begin) {
  runtime::Duration last{};
  for (int rank = 0; rank < ranks; ++rank) {
    begin(rank, [&cluster, &last, rank] {
      last = std::max(last, cluster.time().now());
      cluster.loop(rank).stop();
    });
  }
  cluster.run();
  return runtime::seconds(last);
}

double by_nccl(const Job& job, NcclMode way) {
  runtime::Simulation cluster = cluster_of(job);
  PhantomNccl nccl(cluster, {way, way, way});
  const std::vector<int> ranks = all_ranks(job);
  std::vector<std::unique_ptr<CommunicatorFactory>> sources;
  std::vector<std::unique_ptr<Communicator>> members;
  for (const int rank : ranks) {
    sources.push_back(nccl.source(cluster.loop(rank)));
    const PlanCommunicator::Options options{
        .team = {job.topology, ranks}, .me = rank, .ranks = ranks, .choice = {}, .staging = {}};
    members.push_back(sources.back()->communicator(TeamKind::column, 0, options));
  }
  const Communicator::Operand part{.data = nullptr, .elements = job.bytes / 2};
  return ends(cluster, job.topology.ranks(), [&](int rank, runtime::Handler done) {
    members[static_cast<std::size_t>(rank)]->run(job.collective, {&part, 1}, runtime::DType::bf16, "all of it",
                                                 std::move(done));
  });
}

double by_plan(const Job& job, const Algorithm& algorithm) {
  runtime::Simulation cluster = cluster_of(job);
  const runtime::ProfileCosts costs(job.profile);
  const std::vector<int> ranks = all_ranks(job);
  const std::size_t elements = job.bytes / 2, parts[] = {elements};
  PlanChoice choice;
  choice.chunk_bytes = std::max(choice.chunk_bytes, job.bytes / ranks.size() / chunks_at_most);
  const int chunks = choice.chunks(job.topology.ranks(), parts, runtime::DType::bf16);
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<std::unique_ptr<runtime::Stream>> streams;
  std::vector<std::unique_ptr<Executor>> executors;
  for (const int rank : ranks) {
    devices.push_back(make_phantom_device(cluster.time(), cluster.cores(rank), cluster.space(),
                                          {.apart = true, .costs = &costs}));
    streams.push_back(devices.back()->make_stream("reduce", runtime::StreamWidth::one));
    executors.push_back(std::make_unique<Executor>(cluster.loop(rank), cluster.transport(rank), *streams.back()));
  }
  std::byte* const memory = cluster.space().unreachable();
  return ends(cluster, job.topology.ranks(), [&](int rank, runtime::Handler done) {
    const auto schedules = std::make_shared<const std::vector<RankSchedule>>(
        algorithm.schedules(job.topology, elements, chunks, rank));
    executors[static_cast<std::size_t>(rank)]->run({.parts = {{memory, schedules}},
                                                    .members = ranks,
                                                    .me = rank,
                                                    .staging = memory + job.bytes,
                                                    .dtype = runtime::DType::bf16,
                                                    .depth = choice.depth},
                                                   std::move(done));
  });
}

Collective collective_of(std::string_view name) {
  for (const Collective each : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce})
    if (name == to_string(each)) return each;
  fail(ErrorCode::usage, "unknown collective: {}; use all-gather, reduce-scatter or all-reduce", name);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() != 6 && words.size() != 8) {
    fmt::print(stderr, "usage: {} PROFILE NODES RANKS_OF_A_NODE COLLECTIVE BYTES [RANK_RATE NODE_RATE]\n",
               words[0]);
    return 64;
  }
  try {
    Job job{.profile = runtime::read_machine_profile(words[1]),
            .topology = Topology::regular(std::stoi(words[3]), std::stoi(words[2])),
            .collective = collective_of(words[4]),
            .bytes = static_cast<std::size_t>(std::stod(words[5]))};
    if (words.size() == 8) {
      job.profile.links.inter_node.bytes_per_second = std::stod(words[6]);
      job.profile.links.inter_node.node_bytes_per_second = std::stod(words[7]);
    }
    std::string text;
    const auto add = [&](std::string_view name, double seconds) {
      text += fmt::format("{}\"{}\": {:.6g}", text.empty() ? "" : ", ", name, 1e3 * seconds);
    };
    add("nccl", by_nccl(job, NcclMode::own));
    add("nccl hierarchical", by_nccl(job, NcclMode::hierarchical));
    for (const Algorithm& algorithm : algorithms(job.collective)) add(algorithm.name, by_plan(job, algorithm));
    fmt::print("{{{}}}\n", text);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", words[0], error.what());
    return EXIT_FAILURE;
  }
}
