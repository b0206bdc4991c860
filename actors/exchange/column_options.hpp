// Options of a column's collectives.
#pragma once

#include "actors/states/unit_shardings.hpp"
#include "collectives/communicator_factory.hpp"
#include "collectives/shard.hpp"

#include <array>
#include <vector>

namespace ranvier::actors {

struct ColumnOptions {
  collectives::ShardLayout layout;
  UnitShardings sharding;
  std::vector<int> ranks;                                                ///< MPI ranks of the column, in row order
  std::array<collectives::PlanChoice, collectives::team_kinds> choices;  ///< by TeamKind
  collectives::CommunicatorFactory* source = nullptr;  ///< null: communicators run plans over the transport
  bool packs = false;  ///< the source may need contiguous data, hence memory to pack strided data
};

}  // namespace ranvier::actors
