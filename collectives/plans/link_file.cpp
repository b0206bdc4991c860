#include "collectives/plans/link_file.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace ranvier::collectives {

void require_classes(const Links& links, std::span<const int> node_of, std::string_view source) {
  std::map<int, int> ranks;
  for (const int node : node_of) ++ranks[node];
  const bool shared = std::any_of(ranks.begin(), ranks.end(), [](const auto& node) { return node.second > 1; });
  const auto require = [&](const char* of_class, const Link& link, const std::string& why) {
    if (link.measured()) return;
    fail(ErrorCode::usage,
         "{}: no entry for links of class '{}', but {}; run ranvier-bench `write_links` FILE on the job's nodes",
         source, of_class, why);
  };
  if (shared) require("intra_node", links.intra_node, "ranks of this run share a node");
  if (ranks.size() > 1) {
    require("inter_node", links.inter_node, fmt::format("the ranks of this run are on {} nodes", ranks.size()));
  }
}

}  // namespace ranvier::collectives
