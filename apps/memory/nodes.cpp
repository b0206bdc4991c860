#include "apps/memory/nodes.hpp"

#include "collectives/plans/link_file.hpp"
#include "runtime/base/error.hpp"

namespace ranvier::apps {

std::vector<int> nodes_of(const TrainOptions& options, std::span<const int> asked) {
  const auto& [node_size, links, prefetch] = options.shard;
  std::vector<int> nodes;
  if (node_size == 0) {
    expect(std::ssize(asked) == options.ranks, "the nodes of {} ranks are known, and {} are needed", asked.size(),
           options.ranks);
    nodes.assign(asked.begin(), asked.end());
  }
  while (node_size > 0 && std::ssize(nodes) < options.ranks)
    nodes.push_back(static_cast<int>(nodes.size()) / node_size);
  if (!links.empty()) collectives::require_classes(options.trainer.links, nodes, "--links " + links);
  return nodes;
}

}  // namespace ranvier::apps
