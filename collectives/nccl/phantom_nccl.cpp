#include "collectives/nccl/phantom_nccl.hpp"

#include "collectives/plans/cost.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace ranvier::collectives {

using runtime::duration;
using runtime::Duration;

namespace {

/// Bytes that each of `ranks` ranks sends in a ring for a buffer of `bytes`.
double ring_bytes(Collective collective, double bytes, int ranks) {
  return bytes * (ranks - 1) / ranks * (collective == Collective::all_reduce ? 2 : 1);
}

int nodes_of(const runtime::VirtualNetwork& network, const std::vector<int>& ranks) {
  std::set<int> nodes;
  for (const int rank : ranks) nodes.insert(network.node_of(rank));
  return static_cast<int>(nodes.size());
}

double ring_latency(const runtime::VirtualNetwork& network, Collective collective, const std::vector<int>& ranks) {
  const runtime::Links& links = network.links();
  const int members = static_cast<int>(ranks.size()), nodes = nodes_of(network, ranks);
  const int across = nodes > 1 ? nodes : 0;
  // The last rank of a ring over all members has waited for all links except one.
  const double inside = links.intra_node.latency_seconds * std::max(0, members - std::max(across, 1));
  const double ring = inside + links.inter_node.latency_seconds * std::max(0, across - 1);
  if (collective != Collective::all_reduce) return ring;
  const double deep = std::ceil(std::log2(std::max(nodes, 1)));
  const double longest_chain = std::ceil(static_cast<double>(members) / nodes) - 1;
  const double tree = links.inter_node.latency_seconds * deep + links.intra_node.latency_seconds * longest_chain;
  return 2 * std::min(ring, tree);
}

}  // namespace

/// One rank's communicator of a group.
class PhantomNccl::Member final : public Communicator {
 public:
  Member(PhantomNccl& nccl, runtime::EventLoop& loop, runtime::PhantomDevice* held, Group& group, int me)
      : nccl_(nccl), loop_(loop), held_(held), group_(group), me_(me) {}

  [[nodiscard]] const Team& team() const noexcept override { return group_.options.team; }
  [[nodiscard]] int me() const noexcept override { return me_; }

  void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
           runtime::Handler done) override {
    const std::size_t width = runtime::size_of(dtype);
    std::size_t bytes = 0;
    for (const Operand& part : parts) bytes += part.elements * width;
    // If one rank has nothing to do, then no rank has.
    if (group_.options.ranks.size() == 1 || bytes == 0) return loop_.post(std::move(done));
    Operation operation{.collective = collective, .bytes = bytes, .element_bytes = width, .done = {}};
    operation.done.emplace_back(
        [this, over = tracked(std::move(what), loop_.now(), std::move(done))] { loop_.post(over); });
    if (held_ != nullptr) operation.held.push_back(held_);
    nccl_.begin(group_, me_, std::move(operation));
  }

 private:
  PhantomNccl& nccl_;
  runtime::EventLoop& loop_;
  runtime::PhantomDevice* held_;
  Group& group_;
  int me_;
};

class PhantomNccl::Source final : public CommunicatorFactory {
 public:
  Source(PhantomNccl& nccl, runtime::EventLoop& loop, runtime::PhantomDevice* held)
      : nccl_(nccl), loop_(loop), held_(held) {}

  [[nodiscard]] std::unique_ptr<Communicator> communicator(TeamKind, int number,
                                                           PlanCommunicator::Options options) override {
    return std::make_unique<Member>(nccl_, loop_, held_, nccl_.group(number, options), options.me);
  }
  [[nodiscard]] bool sums_alike() const noexcept override { return sums_follow_plans(nccl_.ways_); }

 private:
  PhantomNccl& nccl_;
  runtime::EventLoop& loop_;
  runtime::PhantomDevice* held_;
};

std::unique_ptr<CommunicatorFactory> PhantomNccl::source(runtime::EventLoop& loop, runtime::PhantomDevice* held) {
  return std::make_unique<Source>(*this, loop, held);
}

PhantomNccl::Group& PhantomNccl::group(int number, const PlanCommunicator::Options& options) {
  const auto [found, is_new] = groups_.try_emplace({number, options.ranks.front()});
  Group& group = found->second;
  if (is_new) {
    group.options = options;
    group.begun.resize(options.ranks.size());
    group.expected = static_cast<std::size_t>(
        std::ranges::count_if(options.ranks, [this](int rank) { return !is_absent(rank); }));
  }
  expect(group.options.ranks == options.ranks, "communicator {} of rank {} has other members on other ranks",
         number, options.ranks.front());
  return group;
}

void PhantomNccl::begin(Group& group, int me, Operation operation) {
  const std::uint64_t number = group.begun[static_cast<std::size_t>(me)]++;
  const std::size_t place = number - group.first;
  if (place == group.waiting.size()) {
    group.waiting.push_back(std::move(operation));
  } else {
    Operation& known = group.waiting[place];
    expect(known.collective == operation.collective && known.bytes == operation.bytes,
           "ranks of a communicator start operation {} differently: {} of {} bytes and {} of {}", number,
           to_string(known.collective), known.bytes, to_string(operation.collective), operation.bytes);
    known.done.push_back(std::move(operation.done.front()));
    known.held.insert(known.held.end(), operation.held.begin(), operation.held.end());
  }
  while (!group.waiting.empty() && group.waiting.front().done.size() == group.expected) {
    const Operation next = std::move(group.waiting.front());
    group.waiting.pop_front();
    ++group.first;
    group.ends = end_of(group, next);
    for (runtime::PhantomDevice* const device : next.held) device->hold(group.ends);
    cluster_->time().at(group.ends, [done = next.done] {
      for (const runtime::Handler& each : done) each();
    });
  }
}

Duration PhantomNccl::end_of(Group& group, const Operation& operation) {
  const Duration ready = std::max(cluster_->time().now(), group.ends);
  if (operation.collective == Collective::all_to_all) return by_exchange(group, operation, ready);
  const NcclMode mode = mode_of(ways_, operation.collective);
  if (mode != NcclMode::plan) return by_rings(group, operation, mode, ready);
  const auto [known, is_new] =
      group.planned.try_emplace({operation.collective, operation.bytes, operation.element_bytes});
  if (is_new) {
    const Topology& topology = group.options.team.topology;
    const std::size_t elements = operation.bytes / operation.element_bytes;
    const std::size_t parts[] = {elements};
    const int chunks = group.options.choice.chunks(
        topology.ranks(), parts, operation.element_bytes == 4 ? runtime::DType::f32 : runtime::DType::bf16);
    const Plan plan = group.options.choice.algorithm_of(operation.collective).plan(topology, elements, chunks, 0);
    known->second = duration(seconds(plan, topology,
                                     {.links = cluster_->network().links(),
                                      .element_bytes = operation.element_bytes,
                                      .chunks = chunks,
                                      .depth = group.options.choice.depth}));
  }
  return ready + known->second;
}

Duration PhantomNccl::by_exchange(const Group& group, const Operation& operation, Duration ready) {
  runtime::VirtualNetwork& network = cluster_->network();
  const std::vector<int>& ranks = group.options.ranks;
  const auto members = static_cast<double>(ranks.size());
  const double sent = static_cast<double>(operation.bytes) / 2 * (members - 1) / members;  // half of the buffer
  const runtime::Links& links = network.links();
  const double step =
      nodes_of(network, ranks) > 1 ? links.inter_node.latency_seconds : links.intra_node.latency_seconds;
  return network.exchange(ranks, sent, ready) + duration((members - 1) * step);
}

Duration PhantomNccl::by_rings(const Group& group, const Operation& operation, NcclMode mode, Duration ready) {
  const Topology& topology = group.options.team.topology;
  runtime::VirtualNetwork& network = cluster_->network();
  const auto whole = static_cast<double>(operation.bytes);
  for (const auto& [collective, span] : nccl_parts(mode, operation.collective, topology)) {
    std::vector<std::vector<int>> rings;  // cluster ranks
    if (span == NcclSpan::team) {
      rings.push_back(group.options.ranks);
    } else {
      const bool inside = span == NcclSpan::row;
      for (int ring = 0; ring < (inside ? topology.outer : topology.inner); ++ring) {
        auto& ranks = rings.emplace_back();
        for (const int member : inside ? topology.row(ring) : topology.column(ring))
          ranks.push_back(group.options.ranks[static_cast<std::size_t>(member)]);
      }
    }
    const double part = span == NcclSpan::column ? whole / topology.inner : whole;
    Duration end = ready;
    for (const std::vector<int>& ranks : rings) {
      const double bytes = ring_bytes(collective, part, static_cast<int>(ranks.size()));
      end = std::max(end, network.ring(ranks, bytes, ready) + duration(ring_latency(network, collective, ranks)));
    }
    ready = end;
  }
  return ready;
}

}  // namespace ranvier::collectives
