// AdamW on host threads (alternative in ZeRO-Infinity §5.2.1): states stay in host memory or pinned file buffers,
// gradients are copied to the host and parameters back. With a `cpu` device the host is a separate device with as many
// threads, so that updates overlap with passes. Same arithmetic as on the device. Loop thread only.
#pragma once

#include "actors/optimizer/state_records.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace ranvier::actors {

/// Arrays of a stretch of a bucket: states on the host, the rest on the device.
struct StretchStep {
  StateRecords::Stretch states;
  const std::byte* gradient = nullptr;
  runtime::StridedLayout gradient_runs;
  bool gradient_on_host = false;     ///< the gradient is in host memory
  std::byte* layers_copy = nullptr;  ///< see AdamWArrays::working
  runtime::StridedLayout layers_runs;
  std::vector<runtime::DecaySegment> segments;  ///< relative to the stretch's start in the unit
};

/// AdamW on a stretch; queues work on the stream.
void step_stretch(runtime::StreamView stream, const UnitState& unit, const models::Precision& precision,
                  const StretchStep& stretch, runtime::AdamWOptions adamw);

class HostStep {
 public:
  /// Pinned buffers, one of each per bucket in flight; none for gradients that are already on the host.
  struct Plan {
    runtime::MemoryId gradients, parameters;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, std::size_t slots);

  HostStep(const RankContext& context, const ModelShare& share, const Plan& plan);
  ~HostStep();

  /// Updates a bucket; `done` runs on the loop when states are updated and layers' parameters are on the device.
  void step(std::size_t slot, const UnitState& unit, std::vector<StretchStep> stretches,
            const runtime::AdamWOptions& adamw, runtime::Handler done);
  /// Rounds separate master weights to layers' parameters without an update.
  void refresh(std::size_t slot, std::vector<StretchStep> stretches, runtime::DType master, runtime::Handler done);

 private:
  void copy_to_layers(std::size_t slot, const std::vector<StretchStep>& stretches, runtime::Handler done);
  void after(runtime::Stream& stream, runtime::Handler next);

  const RankContext* context_;
  const UnitStates* states_;
  Plan plan_;
  std::unique_ptr<runtime::Device> host_;  ///< null: the device does the CPU work
  std::unique_ptr<runtime::Stream> to_host_, steps_, to_device_;
};

}  // namespace ranvier::actors
