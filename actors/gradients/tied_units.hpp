// Tied units: units of several layers, or of two stages (embedding and head). Their uses accumulate separately and are
// summed once per batch, before the columns reduce (Myelin §III-B). Both stages add the same numbers, so replicas are
// bit-equal; if columns may round differently (CommunicatorFactory::sums_alike()), the first stage sends its result to
// the other one. Ranks of the same row exchange messages of limited size. Loop thread only.
#pragma once

#include "actors/gradients/offloaded_gradients.hpp"
#include "runtime/loop/in_order.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace ranvier::actors {

class TiedUnits {
 public:
  struct Options {
    /// By unit of the stage: rank of the same row on the other stage.
    std::vector<std::optional<int>> partners;
    std::size_t message_bytes = 1 << 20;  ///< maximum message size between the stages, in whole blocks
    int depth = 4;  ///< maximum number of messages in flight over all units, one per unit at least
  };
  struct Plan {
    Options options;
    std::size_t messages_of_each = 0;  ///< messages in flight per unit
    runtime::MemoryId places;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, Options options);
  /// Maximum of messages in flight for units of two stages.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const UnitStates& states,
                                                                            const Plan& plan);

  /// `records` is null if accumulated gradients are on the device. All arguments must outlive this object.
  TiedUnits(const RankContext& context, const ModelShare& share, const Plan& plan, OffloadedGradients* records);

  /// Adds a unit's complete uses into use 0, then calls `done` on the loop; at once if there is a single use.
  void sum_uses(std::size_t unit, runtime::Handler done);

  /// Returns whether reduced gradients must be copied to the other stage.
  [[nodiscard]] bool copies(std::size_t unit) const { return units_[unit].copies; }
  /// Sends or receives this rank's part of a bucket, `runs` (not empty). Both ranks call this for the same buckets in
  /// the same order. The bytes must be complete, and stay unchanged until `done`, which runs on the loop after this
  /// returned.
  void copy(std::size_t unit, const std::vector<runtime::Bytes>& runs, runtime::Handler done);

  [[nodiscard]] std::vector<Wait> waits() const;
  [[nodiscard]] std::vector<int> peers() const;

 private:
  struct Unit {
    std::optional<int> partner;  // rank of the other use; none: it is use 1 of this stage
    bool sums = false, copies = false;
    runtime::Tag tag;
    std::vector<OffloadedGradients::Stretch> stretches;  // parts of the sum, identical on both stages
    runtime::SlotPool places;                    // one per stretch or message in progress; copies need no memory
    runtime::InOrder sends;                      // sends of stretches
    std::optional<runtime::Duration> sum_since;  // start of the current sum
    std::size_t copying = 0;                     // messages
    runtime::Duration copy_since{};              // start of the oldest pending message, or earlier
  };

  void sum(std::size_t unit, std::size_t stretch, const runtime::SlotPool::Slot& place, runtime::Handler done);

  const RankContext* context_;
  const UnitStates* states_;
  OffloadedGradients* records_;
  std::size_t message_bytes_;
  std::vector<Unit> units_;
};

}  // namespace ranvier::actors
