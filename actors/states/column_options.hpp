// Options of the collectives of a column, the data-parallel group of a pipeline stage.
#pragma once

#include "actors/states/unit_shardings.hpp"
#include "collectives/communicators/communicator_factory.hpp"
#include "collectives/plans/shard.hpp"

#include <array>
#include <vector>

namespace ranvier::actors {

struct ColumnOptions {
  collectives::ShardLayout layout;
  UnitShardings sharding;
  std::vector<int> ranks;                                                ///< MPI ranks of the column, in row order
  std::array<collectives::PlanChoice, collectives::team_kinds> choices;  ///< algorithms, by TeamKind
  collectives::CommunicatorFactory* source = nullptr;  ///< null: collectives run as plans over the transport
  bool packs = false;  ///< reserve memory to pack strided data, since `source` may need it contiguous
};

}  // namespace ranvier::actors
