// How the ranks of a column share out the units of a model: what is trained, and what is frozen. Where a small part is
// trained (LoRA), nearly all parameters are frozen and nearly all of the rest is the trained part's (PaRO §3.2,
// Ψ ≫ Ψ′), so that each has a sharding of its own. Pure data; any thread.
#pragma once

#include "collectives/shard.hpp"

namespace ranvier::actors {

struct UnitShardings {
  collectives::Sharding
      frozen;  ///< its parameters alone: what is frozen has neither gradients nor optimizer states
  collectives::Sharding trained;

  UnitShardings() = default;
  /// Both alike.
  UnitShardings(const collectives::Sharding& all) noexcept : frozen(all), trained(all) {}
  UnitShardings(const collectives::Sharding& of_frozen, const collectives::Sharding& of_trained) noexcept
      : frozen(of_frozen), trained(of_trained) {}

  [[nodiscard]] const collectives::Sharding& of(bool is_trained) const noexcept {
    return is_trained ? trained : frozen;
  }

  friend bool operator==(const UnitShardings&, const UnitShardings&) = default;
};

}  // namespace ranvier::actors
