// Separate scopes of frozen and trained units. In partial training (LoRA) nearly all parameters are frozen, but all
// gradients and optimizer states belong to the trained part (PaRO §3.2, Ψ ≫ Ψ′). Pure data; any thread.
#pragma once

#include "collectives/communicators/communicator_factory.hpp"
#include "collectives/plans/shard.hpp"
#include "collectives/plans/wire_type.hpp"

#include <array>
#include <vector>

namespace ranvier::actors {

struct UnitShardings {
  collectives::Sharding frozen;  ///< scope of frozen parameters; other scopes are unused
  collectives::Sharding trained;

  UnitShardings() = default;
  UnitShardings(const collectives::Sharding& all) noexcept : frozen(all), trained(all) {}
  UnitShardings(const collectives::Sharding& of_frozen, const collectives::Sharding& of_trained) noexcept
      : frozen(of_frozen), trained(of_trained) {}

  [[nodiscard]] const collectives::Sharding& of(bool is_trained) const noexcept {
    return is_trained ? trained : frozen;
  }

  friend bool operator==(const UnitShardings&, const UnitShardings&) = default;
};

/// Options of the collectives of a column, the data-parallel group of a pipeline stage.
struct ColumnOptions {
  collectives::ShardLayout layout;
  UnitShardings sharding;
  std::vector<int> ranks;                                                ///< MPI ranks of the column, in row order
  std::array<collectives::PlanChoice, collectives::team_kinds> choices;  ///< algorithms, by TeamKind
  collectives::WireTypes wire = {};                                      ///< types in messages
  collectives::CommunicatorFactory* source = nullptr;  ///< null: collectives run as plans over the transport
  bool packs = false;  ///< reserve memory to pack strided data, since `source` may need it contiguous
};

}  // namespace ranvier::actors
