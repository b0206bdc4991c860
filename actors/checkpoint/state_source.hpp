// Interface of a checkpoint to resume from, independent of the grid that wrote it. Loop thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "models/core/layer.hpp"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ranvier::actors {

/// Elements of a unit's array; elements beyond the unit's end are padding and not stored.
struct StateRange {
  const models::UnitSpec* unit = nullptr;
  std::string_view array;
  collectives::Range range;
};

class StateSource {
 public:
  virtual ~StateSource() = default;

  /// Announces the next reads in their order, for prefetching.
  virtual void will_read([[maybe_unused]] std::span<const StateRange> ranges) {}
  /// Reads elements starting at `begin` of an array, named by to_string(StateKind); blocks. Throws ErrorCode::data if
  /// they are missing or damaged.
  virtual void read(const models::UnitSpec& unit, std::string_view array, std::size_t begin,
                    std::span<float> out) = 0;
  /// Scalars of all actors.
  [[nodiscard]] virtual std::vector<StateScalar> scalars() const = 0;
};

}  // namespace ranvier::actors
