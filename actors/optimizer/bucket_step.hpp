// AdamW on a bucket, on the device or the host, and rounding of its weights for layers. One launch per kernel for any
// number of ranks. Loop thread only.
#pragma once

#include "actors/optimizer/host_step.hpp"
#include "actors/optimizer/state_records.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class BucketStep {
 public:
  using Plan = std::optional<HostStep::Plan>;  ///< none: updates on the device
  /// `slots`: number of buckets that are updated at a time; Operands::slot is below it.
  [[nodiscard]] static Plan plan(PlanContext& planner, std::size_t slots);

  BucketStep(const RankContext& context, const ModelShare& share, const Plan& plan, const StateRecords& states);

  [[nodiscard]] bool on_host() const noexcept { return host_ != nullptr; }

  /// Arrays of an update; for records see bundle_sweep.hpp.
  struct Operands {
    ChunkSchedule::Bucket bucket;
    std::size_t slot = 0;                                  ///< slot of its states
    StateRecords::Copy copy = StateRecords::Copy::counts;  ///< destination; layers' copies follow `counts` only
    const std::byte* gradients = nullptr;                  ///< record; null: in place in the unit
    bool gradients_on_host = false;                        ///< update on the host; the record is in host memory
    std::byte* parameters = nullptr;  ///< record of layers' parameters; null: in place in the unit
  };
  /// `done` runs on the loop when states are updated and layers' parameters are on the device.
  void step(const Operands& operands, const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// Rounds master weights to layers' parameters without an update.
  void round(const Operands& operands, runtime::Handler done);

 private:
  [[nodiscard]] std::vector<StretchStep> stretches(const Operands& operands) const;
  void clear_record(const Operands& operands);

  const RankContext* context_;
  const UnitStates* states_;
  const StateRecords* records_;
  std::unique_ptr<HostStep> host_;  // null: updates on the device
};

}  // namespace ranvier::actors
