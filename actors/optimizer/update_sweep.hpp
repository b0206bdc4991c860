// Passes all buckets of a stage through an update, bundle by bundle:
//
//   gradients → fetch of states → update → store of states
//                                       → refresh of parameters
//
// Muon's matrices pass twice (BundleSweep::Pass): their momentum is updated; its owner orthogonalizes each matrix; the
// result is subtracted from the weights.
//
// A sweep updates the committed copy of the states, or spare ones ahead of the decision on the step. Sweeps of an
// optimizer share buffers, so only one starts bundles at a time. Loop thread only.
#pragma once

#include "actors/optimizer/bucket_step.hpp"
#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/optimizer/gradient_gather.hpp"
#include "actors/optimizer/matrix_exchange.hpp"
#include "actors/optimizer/parameter_refresh.hpp"
#include "actors/optimizer/state_records.hpp"
#include "offload/bucket_pipeline.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::actors {

/// Delays the update of a bucket until the running snapshot has copied it (checkpoint/snapshot.hpp): calls `go` when
/// this copy of the bucket's states (StateRecords::number_of) may change, at once or after it was copied.
using CopyOnWriteGuard =
    std::function<void(const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go)>;

class UpdateSweep {
 public:
  /// Shared by all sweeps of an optimizer.
  struct Shared {
    runtime::EventLoop& loop;
    const ModelShare& share;
    std::size_t depth = 1;  ///< maximum number of buckets in the pipeline
    GradientGather gradients;
    StateRecords states;
    BucketStep step;
    ParameterRefresh refresh;
    MatrixExchange matrices;
    CopyOnWriteGuard guard = nullptr;  ///< null: no snapshots
    UpdateSweep* active = nullptr;     ///< the sweep that starts bundles
  };
  struct Options {
    offload::CommitMode commit_mode = offload::CommitMode::always;
    /// Called per bundle when its parameters are refreshed. None: updates write spare copies, and parameters stay.
    runtime::Handler refreshed;
    /// Buckets that this sweep has updated are only rounded for layers.
    const UpdateSweep* ahead = nullptr;
  };
  /// `order`: order of bundles, by number. `shared` must outlive the sweep.
  UpdateSweep(Shared& shared, std::span<const std::size_t> order, Options options);

  /// Starts a step: fetches states, and updates buckets whose gradients are available. `over` runs when all states are
  /// stored, or when all running work has ended if the step is not committed. `adamw` must stay until then.
  void begin(const runtime::UpdateOptions& adamw, runtime::Handler over);
  /// See BucketPipeline::resolve().
  void resolve(bool commits);
  /// Makes this sweep the active one. Its first `bundles` start as soon as buffers are free.
  void allow(std::size_t bundles);
  void allow_all() { allow(shared_->share.chunks.bundles.size()); }
  /// Starts bundles that are allowed.
  void start_bundles();
  /// Ends a step's bundles; call it before the first one of the next step.
  void rewind();

  /// If false, gradients of offloaded states in the next bundles are not needed.
  void need_gradients(bool need) { needs_gradients_ = need; }
  [[nodiscard]] std::size_t buckets() const noexcept { return bundles_.buckets.size(); }
  /// Returns whether the bucket's spare copy contains the step.
  [[nodiscard]] bool has_stored(const ChunkSchedule::Bucket& bucket) const {
    return stored_[bucket.unit][bucket.index];
  }
  /// Makes the stored spare copies valid; returns their number.
  std::int64_t commit();
  /// Discards the spare copies.
  void forget_stored();

 private:
  using Pass = BundleSweep::Pass;

  /// A unit with matrices between the start and the end of its passes.
  struct MatrixUnit {
    runtime::SlotPool::Slot update;
    std::size_t buckets_missing = 0;  // buckets that have not ended the current pass
    bool orthogonal = false;          // the first pass has ended, and the update is orthogonal
  };

  [[nodiscard]] StateRecords::Copy copy() const {
    return options_.refreshed ? StateRecords::Copy::counts : StateRecords::Copy::spare;
  }
  [[nodiscard]] const ChunkSchedule::Bucket& bucket_of(const offload::BucketPass& pass) const {
    return bundles_.buckets[pass.bucket].bucket;
  }
  [[nodiscard]] bool was_ahead(const offload::BucketPass& pass) const {
    return options_.ahead != nullptr && options_.ahead->has_stored(bucket_of(pass));
  }
  /// Returns whether the sweep updates the bucket: sweeps that write spare copies leave out states on the device.
  [[nodiscard]] bool updates(const ChunkSchedule::Bucket& bucket) const {
    return copy() == StateRecords::Copy::counts || !shared_->states.on_device(bucket);
  }
  /// Returns whether the bundle's gradients, or its updated parameters, must pass through a buffer.
  [[nodiscard]] bool gathers(const BundleSweep::Bundle& bundle) const;
  [[nodiscard]] bool refreshes(const BundleSweep::Bundle& bundle) const;
  [[nodiscard]] std::vector<bool> without_slot() const;
  [[nodiscard]] offload::BucketStages stages();
  [[nodiscard]] Pass pass_of(const offload::BucketPass& pass) const {
    return bundles_.bundles[bundles_.buckets[pass.bucket].bundle].pass;
  }
  /// Returns whether the next bundle may start, and assigns buffers for its updates.
  [[nodiscard]] bool may_start(const BundleSweep::Bundle& bundle);
  /// A bucket has ended a pass. After the first pass of all buckets, the unit's update becomes orthogonal.
  void passed(const ChunkSchedule::Bucket& bucket, Pass pass);
  void stored(const ChunkSchedule::Bucket& bucket);
  void bundle_here(std::size_t bundle);
  void fetch(const offload::BucketPass& pass, const runtime::Handler& done);
  void update(const offload::BucketPass& pass, const runtime::Handler& done);
  void store(const offload::BucketPass& pass, const runtime::Handler& done);
  void updated(std::size_t bundle);

  Shared* shared_;
  Options options_;
  BundleSweep bundles_;
  bool in_stream_order_;  // only the compute stream reads parameters, so its order suffices
  offload::BucketPipeline pipeline_;
  const runtime::UpdateOptions* adamw_ = nullptr;
  bool needs_gradients_ = true;
  std::size_t allowed_ = 0;         // number of bundles
  std::size_t next_ = 0;            // in bundles_
  int begun_ = 0;                   // steps in the pipeline whose bundles have not ended
  std::vector<std::size_t> early_;  // ready buckets of the next step, before begin()
  /// By unit and bucket: the spare copy contains the step, or the first pass was stored.
  std::vector<std::vector<bool>> stored_;
  std::vector<MatrixUnit> matrix_units_;  // by unit
  runtime::InOrder exchanges_;            // exchanges of BundleSweep::matrix_units
  /// By unit and bucket: fetches of second passes that wait for the store of the first one.
  std::map<std::pair<std::size_t, std::size_t>, runtime::Handler> fetches_;
};

}  // namespace ranvier::actors
