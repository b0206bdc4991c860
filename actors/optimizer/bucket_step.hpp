// AdamW on one bucket, on the device or on the host, and the rounding of its weights for layers: one launch of each
// kernel, however many ranks share the column. Loop thread only.
#pragma once

#include "actors/optimizer/host_step.hpp"
#include "actors/optimizer/state_records.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class BucketStep {
 public:
  struct Plan {
    std::optional<HostStep::Plan> host;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner);

  BucketStep(const RankContext& context, const ModelShare& share, const Plan& plan, const StateRecords& states);

  [[nodiscard]] bool on_host() const noexcept { return host_ != nullptr; }

  /// What a step works on. Records are as bundle_round.hpp has them.
  struct Operands {
    ChunkSchedule::Bucket bucket;
    std::size_t slot = 0;  ///< of its states
    StateRecords::Copy copy =
        StateRecords::Copy::counts;        ///< that they go to; layers' copies follow what counts only
    const std::byte* gradients = nullptr;  ///< record; null: they are where the unit has them
    bool gradients_on_host = false;        ///< steps on the host: the record is in host memory
    std::byte* parameters = nullptr;       ///< record of layers' copies; null: likewise
  };
  /// `done` runs on the loop once states are stepped and layers' copies are on the device.
  void step(const Operands& operands, const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// Only rounds master weights to layers' copies, as step() would have; needs no gradients.
  void round(const Operands& operands, runtime::Handler done);

 private:
  [[nodiscard]] std::vector<StretchStep> stretches(const Operands& operands) const;
  void clear_record(const Operands& operands);

  runtime::EventLoop* loop_;
  runtime::Trace* trace_;
  runtime::StreamView stream_;
  const UnitStates* states_;
  const StateRecords* records_;
  std::unique_ptr<HostStep> host_;  // null: steps are the device's
};

}  // namespace ranvier::actors
