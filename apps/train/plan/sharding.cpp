#include "apps/train/plan/sharding.hpp"

namespace ranvier::apps {

ShardSetting resolve_sharding(const TrainOptions& options, std::span<const int> asked_nodes) {
  const ShardOptions& shard = options.shard;
  const auto& [stages, rows] = options.grid.shape;
  ShardSetting setting;
  setting.node_of = nodes_of(options, asked_nodes);
  setting.node_of_row = collectives::common_rows(setting.node_of, stages, rows);
  setting.group_size = group_size_of(shard, setting.node_of_row);
  if (shard.measured) collectives::require_classes(*shard.measured, setting.node_of, "--links " + shard.links);
  setting.links = shard.measured.value_or(actors::assumed_links);
  return setting;
}

}  // namespace ranvier::apps
