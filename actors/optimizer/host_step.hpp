// AdamW on host threads, over states where they lie in host memory or in pinned slots that files were read to
// (ZeRO-Infinity §5.2.1's alternative to bringing them to the device): gradients come to the host, what layers read
// goes back, and states do not move. On a `cpu` device the host is a device of its own beside it, with as many threads,
// so that a step runs beside passes. The arithmetic is that of the device. Loop thread only.
#pragma once

#include "actors/optimizer/state_records.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace ranvier::actors {

/// Arrays of a stretch of a bucket that a step reads and writes: states, and the rest on the device.
struct StretchStep {
  StateRecords::Stretch states;
  const std::byte* gradient = nullptr;
  runtime::StridedLayout gradient_runs;
  bool gradient_on_host = false;     ///< in host memory instead
  std::byte* layers_copy = nullptr;  ///< as in AdamWArrays::working
  runtime::StridedLayout layers_runs;
  std::vector<runtime::DecaySegment> segments;  ///< counted from the stretch's begin on, in the unit
};

class HostStep {
 public:
  /// Pinned, one of each for each bucket that is stepped at a time; no gradients if they are on the host already.
  struct Plan {
    runtime::MemoryId gradients, parameters;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, std::size_t slots);

  HostStep(const RankContext& context, const ModelShare& share, const Plan& plan);
  ~HostStep();

  /// One step on a bucket; `done` runs on the loop once its states are stepped and layers' copies are on the device.
  void step(std::size_t slot, std::vector<StretchStep> stretches, const runtime::AdamWOptions& adamw,
            runtime::Handler done);
  /// Only rounds separate master weights to layers' copies; needs no gradients.
  void refresh(std::size_t slot, std::vector<StretchStep> stretches, runtime::Handler done);

 private:
  void copy_to_layers(std::size_t slot, const std::vector<StretchStep>& stretches, runtime::Handler done);
  void after(runtime::Stream& stream, runtime::Handler next);

  runtime::EventLoop* loop_;
  runtime::Trace* trace_;
  const runtime::Arena* arena_;
  const UnitStates* states_;
  Plan plan_;
  std::unique_ptr<runtime::Device> host_;  ///< null: the device itself computes for the host
  std::unique_ptr<runtime::Stream> to_host_, steps_, to_device_;
};

}  // namespace ranvier::actors
