// Units that several layers use, or that another stage has too (embedding and head): their uses are accumulated
// separately and summed once a batch, before their columns reduce (Myelin §III-B). Both stages of a tied unit add the
// same two numbers and both columns reduce alike, so the copies stay equal to the bit; where columns may round
// differently the first stage sends what its column left to the other one. Loop thread only.
#pragma once

#include "actors/gradients/gradient_records.hpp"
#include "actors/gradients/tied_gradient_copy.hpp"
#include "actors/gradients/tied_gradient_sum.hpp"
#include "runtime/staged_transport.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class TiedUnits {
 public:
  struct Options {
    /// By unit of the stage: the rank of this row that holds the unit too.
    std::vector<std::optional<int>> partners;
    std::size_t message_bytes = 1 << 20;  ///< between the stages
    int depth = 4;                        ///< messages at a time, over all units, and one of each
  };
  struct Plan {
    Options options;
    std::vector<bool> has_places;      ///< by unit
    std::size_t messages_of_each = 0;  ///< at a time
    runtime::MemoryId places;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, Options options);
  /// What units of two stages send and receive at a time.
  [[nodiscard]] static std::vector<runtime::StagedMessages> staged_messages(const UnitStates& states,
                                                                            const Plan& plan);

  /// `records` is null where sums are on the device.
  TiedUnits(const RankContext& context, const ModelShare& share, const Plan& plan, GradientRecords* records);

  /// Leaves the sum of a unit's uses with use 0, then calls `done`; at once where it has one.
  void sum_uses(std::size_t unit, runtime::Handler done);

  /// Whether the stages of a unit must be made equal once their columns have reduced.
  [[nodiscard]] bool copies(std::size_t unit) const { return copies_[unit] != nullptr; }
  /// As TiedGradientCopy::run().
  void copy(std::size_t unit, const std::vector<runtime::Bytes>& runs, runtime::Handler done);

  [[nodiscard]] std::vector<Wait> waits() const;
  [[nodiscard]] std::vector<int> peers() const;

 private:
  std::vector<std::optional<int>> partners_;
  std::vector<std::unique_ptr<TiedGradientSum>> sums_;     // by unit; null: it has one use
  std::vector<std::unique_ptr<TiedGradientCopy>> copies_;  // by unit; null: none is needed
};

}  // namespace ranvier::actors
