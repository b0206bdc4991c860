// Update of a bucket, on the device or the host, and rounding of its weights for layers. One launch per kernel for any
// number of ranks. Loop thread only.
//
// On the host (alternative in ZeRO-Infinity §5.2.1): states stay in host memory or pinned file buffers, gradients are
// copied to the host and parameters back. With a `cpu` device the host is a separate device with as many threads, so
// that updates overlap with passes. Same arithmetic as on the device.
#pragma once

#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/optimizer/state_records.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class BucketStep {
 public:
  /// Pinned buffers, one of each per bucket in flight; none for gradients that are already on the host.
  struct HostPlan {
    runtime::MemoryId gradients, parameters;
  };
  using Plan = std::optional<HostPlan>;  ///< none: updates on the device
  /// `slots`: number of buckets that are updated at a time; Operands::slot is below it.
  [[nodiscard]] static Plan plan(PlanContext& planner, std::size_t slots);

  BucketStep(const RankContext& context, const ModelShare& share, const Plan& plan, const StateRecords& states);
  ~BucketStep();

  /// Returns whether offloaded states are updated on the host.
  [[nodiscard]] bool on_host() const noexcept { return plan_.has_value(); }

  /// An update and its arrays. A *record* has the bucket's elements in bucket order (schedule/bucket_partition.hpp).
  struct Operands {
    ChunkSchedule::Bucket bucket;
    std::size_t slot = 0;                                  ///< slot of its states
    StateRecords::Copy copy = StateRecords::Copy::counts;  ///< destination; layers' copies follow `counts` only
    const std::byte* gradients = nullptr;                  ///< record; null: in place in the unit
    bool gradients_on_host = false;                        ///< update on the host; the record is in host memory
    std::byte* parameters = nullptr;  ///< record of layers' parameters; null: in place in the unit
    float* update = nullptr;          ///< updates of the unit's matrices (MatrixExchange::updates()); null: none
    /// `momentum` leaves the updates of matrices in `update`, and does not write layers' parameters; `matrices`
    /// subtracts the orthogonal updates, and rounds as `only_rounds`.
    BundleSweep::Pass pass = BundleSweep::Pass::whole;
    bool only_rounds = false;  ///< rounds master weights to layers' parameters without an update
  };
  /// `done` runs on the loop when states are updated and layers' parameters are on the device.
  void step(const Operands& operands, runtime::UpdateOptions adamw, runtime::Handler done);

 private:
  /// Elements of a bucket in consecutive finest shards, with their arrays: states on the host or the device, all others
  /// on the device.
  struct Stretch {
    std::size_t begin = 0;   // first element, within the unit; positions start here
    std::size_t offset = 0;  // offset among the bucket's elements in the optimizer's range
    runtime::UpdateArrays arrays;
    std::vector<runtime::DecaySegment> segments, matrix_segments;  // relative to the stretch's start in the unit
    float* update = nullptr;
  };

  /// One stretch, or up to three if the layers' copies contain a part of the range. If v has gaps, these have only the
  /// matrices, and contiguous stretches of the elements with v come before them.
  [[nodiscard]] std::vector<Stretch> stretches(const Operands& operands) const;
  /// Queues the work on a stretch.
  void step_stretch(runtime::StreamView stream, const Operands& operands, const Stretch& stretch,
                    runtime::UpdateOptions adamw) const;

  void step_on_host(const Operands& operands, std::vector<Stretch> stretches, const runtime::UpdateOptions& adamw,
                    runtime::Handler done);
  void after(runtime::Stream& stream, runtime::Handler next);

  const RankContext* context_;
  const UnitStates* states_;
  const StateRecords* records_;
  Plan plan_;
  // For updates on the host:
  std::unique_ptr<runtime::Device> host_;  // null: the device does the CPU work
  std::unique_ptr<runtime::Stream> to_host_, steps_, to_device_;
};

}  // namespace ranvier::actors
