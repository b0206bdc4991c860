// Where a training goes on from: its states as a checkpoint has them, whatever grid wrote it. Loop thread only.
#pragma once

#include "actors/rank/actor.hpp"
#include "models/layer.hpp"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ranvier::actors {

/// Elements of an array of a unit; those behind the unit's end are nowhere.
struct StateRange {
  const models::UnitSpec* unit = nullptr;
  std::string_view array;
  collectives::Range range;
};

class StateSource {
 public:
  virtual ~StateSource() = default;

  /// What will be read next, in this order, so that it may come ahead of the reads.
  virtual void will_read([[maybe_unused]] std::span<const StateRange> ranges) {}
  /// Elements [begin, begin + out.size()) of an array of state_array_names; blocks. Throws ErrorCode::data where
  /// they are not there or not what was written.
  virtual void read(const models::UnitSpec& unit, std::string_view array, std::size_t begin,
                    std::span<float> out) = 0;
  /// The numbers of all parts. Their names stay as long as the source.
  [[nodiscard]] virtual std::vector<StateScalar> scalars() const = 0;
};

}  // namespace ranvier::actors
