// Tied units: units of several layers, or of two stages (embedding and head). Their uses accumulate separately and are
// summed once per batch, before the columns reduce (Myelin §III-B). Both stages add the same numbers, so replicas are
// bit-equal; if columns may round differently, the first stage sends its result to the other one. Loop thread only.
#pragma once

#include "actors/gradients/tied_gradients.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class TiedUnits {
 public:
  struct Options {
    /// By unit of the stage: rank of the same row on the other stage.
    std::vector<std::optional<int>> partners;
    std::size_t message_bytes = 1 << 20;  ///< maximum message size between the stages
    int depth = 4;  ///< maximum number of messages in flight over all units, one per unit at least
  };
  struct Plan {
    Options options;
    std::vector<bool> has_places;      ///< by unit
    std::size_t messages_of_each = 0;  ///< messages in flight per unit
    runtime::MemoryId places;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, Options options);
  /// Maximum of messages in flight for units of two stages.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const UnitStates& states,
                                                                            const Plan& plan);

  /// `records` is null if accumulated gradients are on the device.
  TiedUnits(const RankContext& context, const ModelShare& share, const Plan& plan, GradientRecords* records);

  /// Adds a unit's uses into use 0, then calls `done`; at once if there is a single use.
  void sum_uses(std::size_t unit, runtime::Handler done);

  /// Returns whether reduced gradients must be copied to the other stage.
  [[nodiscard]] bool copies(std::size_t unit) const { return copies_[unit] != nullptr; }
  /// See TiedGradientCopy::run().
  void copy(std::size_t unit, const std::vector<runtime::Bytes>& runs, runtime::Handler done);

  [[nodiscard]] std::vector<Wait> waits() const;
  [[nodiscard]] std::vector<int> peers() const;

 private:
  std::vector<std::optional<int>> partners_;
  std::vector<std::unique_ptr<TiedGradientSum>> sums_;     // by unit; null: single use
  std::vector<std::unique_ptr<TiedGradientCopy>> copies_;  // by unit; null: no copy needed
};

}  // namespace ranvier::actors
