#include "apps/plan/scenarios.hpp"

#include "runtime/base/arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <utility>

namespace ranvier::apps {

using runtime::MachineProfile;

namespace {

void multiply(runtime::Link& link, double times) {
  link.bytes_per_second *= times;
  link.node_bytes_per_second *= times;
}

/// Draws `count` distinct numbers below `all` uniformly, with seed `draw`.
std::vector<int> drawn(int count, int all, int draw) {
  std::vector<int> numbers(static_cast<std::size_t>(all));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::mt19937_64 random(static_cast<std::uint64_t>(draw) + 1);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    std::swap(numbers[i], numbers[i + random() % (numbers.size() - i)]);
  numbers.resize(static_cast<std::size_t>(count));
  return numbers;
}

/// Factor per rank or node: slow.factor for the drawn fraction, 1 for the others.
std::vector<double> factors_of(const SlowShare& slow, int all, int draw) {
  std::vector<double> factors(static_cast<std::size_t>(all), 1.0);
  const int count = std::clamp(static_cast<int>(std::lround(slow.share * all)), 1, all);
  for (const int one : drawn(count, all, draw)) factors[static_cast<std::size_t>(one)] = slow.factor;
  return factors;
}

int nodes_of(const Planner& planner) { return runtime::ceil_divide(planner.world(), planner.node_size()); }

/// Remaining ranks after `dead` of them fail. A node with a dead rank is removed.
int left_of(const PlanOptions& options, const MachineProfile& profile, int dead) {
  const Planner planner(options.train, profile);
  if (dead >= planner.world())
    reject("--dead-ranks {} leaves none of {} ranks; use a smaller number", dead, planner.world());
  std::set<int> nodes;
  for (const int rank : drawn(dead, planner.world(), options.draw)) nodes.insert(rank / planner.node_size());
  int left = planner.world();  // the last node may have fewer
  for (const int node : nodes) left -= std::min(planner.node_size(), planner.world() - node * planner.node_size());
  if (left <= 0)
    reject("--dead-ranks {} leaves no node: each of {} nodes of {} ranks has a dead rank; use a smaller number",
           dead, nodes_of(planner), planner.node_size());
  return left;
}

/// Refuses --threads other than the profile's, since a CPU's rates depend on it.
void check_threads(const PlanOptions& options, const MachineProfile& profile) {
  const std::string* given = value_of(options.train, "threads");
  int threads = 0;  // the profile's
  if (given == nullptr || profile.gpu || whole(threads, 0).read(*given) || threads == 0 ||
      threads == profile.threads)
    return;
  reject(
      "--threads {} does not match profile {}, measured with {} thread{}; remove --threads, or run ranvier-bench "
      "profile --threads {}",
      threads, profile.name, profile.threads, profile.threads == 1 ? "" : "s", threads);
}

void check_overlap(const PlanOptions& options, const MachineProfile& profile) {
  if (!profile.gpu)
    reject("--no-overlap applies to GPUs with NCCL, but profile {} is for CPUs; remove --no-overlap", profile.name);
  if (const std::string* backend = value_of(options.train, "collectives");
      backend != nullptr && *backend == "plans")
    reject("--no-overlap applies to NCCL and cannot be combined with --collectives plans; remove one of the flags");
}

}  // namespace

std::vector<Scenario> scenarios_of(const PlanOptions& options,
                                   const std::function<MachineProfile(const std::string&)>& read_profile) {
  std::vector<Scenario> all;
  for (const std::string& name : options.profiles) {
    MachineProfile profile = read_profile(name);
    std::string label = profile.name.empty() ? name : profile.name;
    all.push_back({.label = std::move(label), .profile = std::move(profile)});
  }
  for (const Scenario& one : all) check_threads(options, one.profile);
  const MachineProfile base = all.front().profile;
  const auto add = [&](std::string label) -> Scenario& {
    return all.emplace_back(Scenario{.label = std::move(label), .profile = base, .draw = options.draw});
  };
  for (const double times : options.bandwidth_times) {
    Scenario& one = add(fmt::format("bandwidth × {}", times));
    multiply(one.profile.links.intra_node, times);
    multiply(one.profile.links.inter_node, times);
  }
  for (const double times : options.memory_times) {
    Scenario& one = add(fmt::format("memory × {}", times));
    std::size_t& memory = base.gpu ? one.profile.device_memory : one.profile.host_memory;
    memory = static_cast<std::size_t>(static_cast<double>(memory) * times);
    if (!base.gpu && one.profile.device_memory > 0)
      one.profile.device_memory = static_cast<std::size_t>(static_cast<double>(one.profile.device_memory) * times);
  }
  for (const SlowNode& slow : options.slow_nodes)
    add(fmt::format("node {} × {} as slow", slow.node, slow.factor)).slow_node = slow;
  for (const SlowShare& slow : options.slow_ranks)
    add(fmt::format("{:.4g}% of ranks × {} as slow", 100 * slow.share, slow.factor)).slow_ranks = slow;
  for (const SlowShare& slow : options.slow_links)
    add(fmt::format("{:.4g}% of links × {} as slow", 100 * slow.share, slow.factor)).slow_links = slow;
  for (const double jitter : options.jitter) add(fmt::format("jitter of {}", jitter)).jitter = jitter;
  if (options.no_overlap) {
    check_overlap(options, base);
    add("no overlap").no_overlap = true;
  }
  for (const int dead : options.dead_ranks) {
    const int left = left_of(options, base, dead);
    add(fmt::format("{} dead, {} ranks left", dead, left)).world = left;
  }
  return all;
}

std::vector<GivenFlag> flags_in(const Scenario& scenario, std::vector<GivenFlag> flags) {
  if (!scenario.world) return flags;
  for (GivenFlag& flag : flags)
    if (flag.name == "world") flag.value = std::to_string(*scenario.world);
  return flags;
}

void check_links(const Planner& planner) {
  const auto require = [&](const runtime::Link& link, const char* where) {
    if (link.measured()) return;
    reject(
        "--profile {} has no rates of links {}, but {} ranks are on {} nodes of {}; measure these links with "
        "mpirun and ranvier-bench profile, or change --node-size",
        planner.profile().name, where, planner.world(), nodes_of(planner), planner.node_size());
  };
  if (planner.world() > 1 && planner.node_size() > 1) require(planner.profile().links.intra_node, "inside a node");
  if (nodes_of(planner) > 1) require(planner.profile().links.inter_node, "between nodes");
}

actors::Disturbances disturbances_of(const Scenario& scenario, const Planner& planner) {
  actors::Disturbances all{.seed = static_cast<std::uint64_t>(scenario.draw),
                           .jitter = scenario.jitter,
                           .no_overlap = scenario.no_overlap};
  const int nodes = nodes_of(planner);
  if (scenario.slow_ranks) all.slow_ranks = factors_of(*scenario.slow_ranks, planner.world(), scenario.draw);
  if (scenario.slow_links) all.slow_nodes = factors_of(*scenario.slow_links, nodes, scenario.draw);
  if (!scenario.slow_node) return all;
  const auto [node, factor] = *scenario.slow_node;
  if (node >= nodes)
    reject("--slow-node {}:{} is not one of {} node{} of {} ranks; use {}", node, factor, nodes,
           nodes == 1 ? "" : "s", planner.node_size(),
           nodes == 1 ? "node 0" : fmt::format("a node from 0 to {}", nodes - 1));
  all.slow_nodes.assign(static_cast<std::size_t>(nodes), 1.0);
  all.slow_nodes[static_cast<std::size_t>(node)] = factor;
  for (int rank = 0; rank < planner.world(); ++rank)
    all.slow_ranks.push_back(rank / planner.node_size() == node ? factor : 1.0);
  return all;
}

}  // namespace ranvier::apps
