#include "apps/sharding.hpp"

#include "actors/sharded_unit.hpp"

namespace ranvier::apps {

ShardSetting resolve_sharding(const TrainOptions& options, const models::Architecture& architecture,
                              std::span<const int> asked_nodes) {
  const ShardOptions& shard = options.shard;
  const auto& [stages, rows] = options.grid.shape;
  ShardSetting setting;
  setting.node_of = nodes_of(options, asked_nodes);
  setting.node_of_row = collectives::common_rows(setting.node_of, stages, rows);
  setting.group_size = group_size_of(shard, setting.node_of_row);
  if (shard.measured) collectives::require_classes(*shard.measured, setting.node_of, "--links " + shard.links);
  setting.links = shard.measured.value_or(actors::assumed_links);
  setting.algorithms =
      actors::choose_algorithms(setting.node_of_row, setting.group_size,
                                {.names = {shard.all_gather, shard.reduce_scatter, shard.all_reduce},
                                 .links = setting.links,
                                 .largest_unit = actors::largest_unit(architecture, rows),
                                 .precision = options.precision.types});
  return setting;
}

}  // namespace ranvier::apps
